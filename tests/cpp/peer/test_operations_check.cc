// The invariants of Operations, through a life in which an operation is called, held, frozen, begun
// again and settled. PeerCore::check() walks through them after every step.
#include <gtest/gtest.h>

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

TEST(OperationsCheck, HoldsInEachStateOfAnOperation) {
  Transcript t;
  t.become_member();
  OpRequest request;
  request.handle = 5;
  request.count = 100;
  request.keep = true;
  request.tag = "t";
  EXPECT_NE(t.call(request).find("tell Begin"), std::string::npos);
  t.core().check();
  const OpKey key{tag_id("t"), 0};
  t.on(OpProgressed{epoch_id(1), key, 40});
  t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}});
  t.core().check();
  const protocol::EpochEnd end{
      epoch_id(1), {{peer_id(3), ""}}, {}, "peer 1.3 lost", protocol::Continuation::kEverything,
      {{key, 40}}};
  EXPECT_FALSE(t.hear(end).starts_with("warn: the master"));
  t.core().check();
  request.handle = 6;
  t.call(request);
  t.core().check();
  t.on(LeaveCalled{});
  t.core().check();
}

}  // namespace
}  // namespace pccl::peer
