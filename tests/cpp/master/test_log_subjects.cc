// The events of the lines in the log of a master, and the groups and peers that they are about.

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

// "lost 0 peer 1.2": the event, the group and the peer.
Lines subjects(Harness& h) {
  Lines out;
  for (const About& about : h.take_events()) {
    std::string line = text(about.event);
    if (about.group) line += " " + std::to_string(about.group->value);
    if (!about.peer.empty()) line += " " + about.peer;
    out.push_back(line);
  }
  return out;
}

TEST(LogSubjects, AGroupIsFoundedAndLosesAMember) {
  Harness h;
  h.found({"a", "b"});
  EXPECT_EQ(subjects(h), (Lines{"registered 0 peer 1.1", "registered 0 peer 1.2", "founded 0"}));
  h.tick_with({"a"}, protocol::kTicksPerTimeout);
  EXPECT_EQ(subjects(h), (Lines{"lost 0 peer 1.2", "epoch_ending 0"}));
  h.say("a", protocol::StateReport{epoch(1), {}});
  EXPECT_EQ(subjects(h), Lines{"epoch_ends 0"});
}

TEST(LogSubjects, AMemberThatLeavesIsNotLost) {
  Harness h;
  h.found({"a", "b"});
  subjects(h);
  h.say("b", protocol::Leave{});
  EXPECT_EQ(subjects(h), (Lines{"left 0 peer 1.2", "epoch_ending 0"}));
}

TEST(LogSubjects, AConnectionBreaksAndIsMadeAgain) {
  Harness h;
  h.found({"a", "b"});
  subjects(h);
  h.close("a");
  EXPECT_EQ(subjects(h), Lines{"disconnected 0 peer 1.1"});
  h.come_back("a", h.resume("a", epoch(1)));
  EXPECT_EQ(subjects(h), Lines{"reconnected 0 peer 1.1"});
}

}  // namespace
}  // namespace pccl::master
