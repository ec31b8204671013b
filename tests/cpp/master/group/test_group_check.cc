// The invariants of a group, in states that other tests pass through quickly. The Harness checks
// them after every step.

#include "master/group/group.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

TEST(GroupCheck, HoldsWhileMessagesAreHeldForTheNextMembership) {
  Harness h;
  h.found({"a", "b"});
  h.hold_persists = true;
  h.enlist("c", Harness::hello(2));
  h.link_all();
  for (const char* name : {"a", "b"}) h.vote(name, epoch(1), 0);
  EXPECT_EQ(h.held(), 1u) << "the next generation";
  h.say("a", protocol::JointAbort{0, epoch(1)});
  h.core().check();
  h.close("b");
  h.release();
  h.core().check();
}

TEST(GroupCheck, HoldsWhileTheLastMemberLeaves) {
  Harness h;
  h.found({"a", "b"});
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.say("b", protocol::Leave{});
  h.say("a", protocol::Leave{});
  h.core().check();
}

}  // namespace
}  // namespace pccl::master
