#include "master/run_view.h"

#include "master/group/groups.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

TEST(RunView, ARunThatNobodyHasJoinedIsIdle) {
  Harness h;
  const RunView& view = h.core().view();
  EXPECT_TRUE(view.is_idle() && view.is_settled() && view.groups.empty());
  EXPECT_FALSE(view.is_founded());
  h.found({"a", "b"});
  EXPECT_TRUE(view.is_founded());
  EXPECT_FALSE(view.is_idle());
}

TEST(RunView, EachPeerIsFoundInItsGroup) {
  Harness h;
  h.found({"a"}, 0);
  h.found({"b"}, 1);
  const RunView& view = h.core().view();
  EXPECT_EQ(view.group_of(h.id("b"))->id(), GroupId{1});
  EXPECT_EQ(view.group_of(PeerId{99}), nullptr);
  EXPECT_EQ(view.described_peers().size(), 2u);
  EXPECT_TRUE(contains(view.described_peers()[0], "rank 0")) << view.described_peers()[0];
}

TEST(RunView, OutlivesAMoveOfItsCore) {
  MasterCore core(Options{.run = "r"});
  const RunView& view = core.view();
  MasterCore moved = std::move(core);
  EXPECT_EQ(&moved.view(), &view);
  EXPECT_EQ(view.context.options.run, "r");
}

}  // namespace
}  // namespace pccl::master
