#include "master/epochs/mismatch_text.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

std::string text_of(const Descriptions& called) {
  return mismatch_text(called, {}, [](PeerId peer) { return "peer " + text(peer); });
}

TEST(Mismatch, NamesTheRarestDescriptionFirst) {
  const protocol::OpInfo usual = all_reduce(8), other = all_reduce(7);
  EXPECT_EQ(text_of({&usual, &usual, &other, nullptr}),
            "rank 2 called all_reduce(sum, float32, 7 elements, world size 2); "
            "ranks 0 and 1 called all_reduce(sum, float32, 8 elements, world size 2). "
            "All ranks must make the same calls, in the same order under one tag");
}

TEST(Mismatch, NamesTheCallSites) {
  protocol::OpInfo usual = all_reduce(8), other = all_reduce(7);
  usual.site = "train.py:42 in step";
  other.site = "train.py:50 in step";
  EXPECT_EQ(text_of({&usual, &other}),
            "rank 0 called all_reduce(sum, float32, 8 elements, world size 2) at train.py:42 in "
            "step; rank 1 called all_reduce(sum, float32, 7 elements, world size 2) at "
            "train.py:50 in step. All ranks must make the same calls, in the same order under one "
            "tag");
}

TEST(Mismatch, NamesTheTwoEndsOfAPart) {
  protocol::OpInfo first, second;
  first.kind = second.kind = protocol::OpKind::kAllToAll;
  first.sends = {1, 5}, first.receives = {1, 2};
  second.sends = {2, 1}, second.receives = {4, 1};
  EXPECT_EQ(text_of({&first, &second}),
            "rank 0 called all_to_all with 5 elements for rank 1, which expects 4. Both ranks have "
            "to give a part the same size");
}

}  // namespace
}  // namespace pccl::master
