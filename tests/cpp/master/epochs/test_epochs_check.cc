// The invariants of a group's epochs, at each phase in which something is still open. The Harness
// checks them after every step; here the steps lead into every phase, with the disk held back.

#include "master/epochs/epochs.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

TEST(EpochsCheck, HoldsWhileEachDecisionIsMadeDurable) {
  Harness h;
  h.hold_persists = true;
  h.found({"a", "b", "c"});
  EXPECT_EQ(h.held(), 1u) << "the founding";
  h.release();
  h.enlist("d", Harness::hello(3));
  h.link_all();
  for (const char* name : {"a", "b", "c"}) h.vote(name, epoch(1), 0);
  EXPECT_EQ(h.held(), 1u) << "the next generation";
  h.close("d");
  EXPECT_EQ(h.held(), 2u) << "it is given up";
  h.release();
  h.say("c", protocol::Leave{});
  for (const char* name : {"a", "b"}) h.say(name, protocol::StateReport{epoch(1), {}});
  EXPECT_EQ(h.held(), 1u) << "the end";
  h.say("b", protocol::Leave{});
  h.release();
  h.say("a", protocol::Leave{});
  EXPECT_EQ(h.held(), 1u) << "nobody is left";
  h.release();
  h.tick(2 * protocol::kTicksPerTimeout);
  h.core().check();
}

TEST(EpochsCheck, HoldsWhileMembersAreRecoveredOneByOne) {
  Harness h;
  h.found({"a", "b"});
  h.restart();
  h.come_back("a", h.resume("a", epoch(1)));
  h.close("a");
  h.come_back("b", h.resume("b", epoch(1)));
  h.come_back("a", h.resume("a", epoch(1)));
  h.say("a", protocol::Leave{});
  h.core().check();
  EXPECT_FALSE(h.core().view().is_idle());
}

}  // namespace
}  // namespace pccl::master
