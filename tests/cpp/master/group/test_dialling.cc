#include "master/group/dialling.h"

#include "master/members/connections.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::LinkState;

struct DiallingTest : testing::Test {
  Harness h;
};

TEST_F(DiallingTest, ANewcomerIsDialledByAllBeforeIt) {
  h.found({"a", "b"});
  h.enlist("c", Harness::hello(2));
  h.enlist("d", Harness::hello(2));
  EXPECT_EQ(h.take(), (Lines{"c < Welcome", "a < Dial c 10.0.0.1:1003", "b < Dial c 10.0.0.1:1003",
                             "d < Welcome", "a < Dial d 10.0.0.1:1004", "b < Dial d 10.0.0.1:1004",
                             "c < Dial d 10.0.0.1:1004"}));
  h.say("c", protocol::Leave{});
  EXPECT_EQ(h.take(), (Lines{"c closed", "a < Forget c", "b < Forget c", "d < Forget c"}));
}

TEST_F(DiallingTest, ABrokenLinkIsDialledAgain) {
  h.found({"a", "b"});
  h.enlist("c", Harness::hello(2));
  h.link_all();
  h.take();
  h.say("c", protocol::LinkReport{h.id("b"), LinkState::kDown, "reset", 1});
  EXPECT_EQ(h.take(), (Lines{"c < Dial b 10.0.0.1:1002"})) << "c had made it";
  h.say("c", protocol::LinkReport{h.id("b"), LinkState::kUnreachable, "refused", 1});
  EXPECT_EQ(h.take(), (Lines{"b < Dial c 10.0.0.1:1003"}));
  h.say("b", protocol::LinkReport{h.id("c"), LinkState::kUnreachable, "refused", 1});
  const std::string log = " (its log has the reason, with PCCL_LOG=info)";
  EXPECT_EQ(h.take(),
            (Lines{"c < Notice peer 1.2 (rank 1, 10.0.0.1:1002) cannot connect to peer "
                   "1.3 (10.0.0.1:1003)" +
                       log + "; peer 1.3 cannot connect to peer 1.2" + log + kWhatToOpen,
                   "b < Notice a newcomer cannot be admitted: peer 1.3 (10.0.0.1:1003) "
                   "cannot connect to peer 1.2 (rank 1, 10.0.0.1:1002)" +
                       log + "; peer 1.2 cannot connect to peer 1.3" + log + kWhatToOpen}))
      << "both go on by themselves";
}

// Its last word was that it cannot reach the other, and that it tries again.
TEST_F(DiallingTest, APeerThatHasHadALinkInTheMeantimeIsToldToDialAgain) {
  h.found({"a", "b"});
  h.enlist("c", Harness::hello(2));
  h.link_all();
  h.say("c", protocol::LinkReport{h.id("b"), LinkState::kDown, "reset", 1});
  h.say("c", protocol::LinkReport{h.id("b"), LinkState::kUnreachable, "refused", 1});
  h.take();
  h.say("b", protocol::LinkReport{h.id("c"), LinkState::kDown, "reset", 3});
  EXPECT_EQ(h.take(), (Lines{"b < Dial c 10.0.0.1:1003"})) << "c made it, but tries already";
  h.say("c", protocol::LinkReport{h.id("b"), LinkState::kUp, "", 3});
  EXPECT_EQ(h.take(), Lines{});
  h.say("c", protocol::LinkReport{h.id("b"), LinkState::kDown, "reset", 3});
  EXPECT_EQ(h.take(), (Lines{"c < Dial b 10.0.0.1:1002"}));
  h.say("c", protocol::LinkReport{h.id("b"), LinkState::kDown, "reset", 3});
  EXPECT_EQ(h.take(), Lines{}) << "it was told";
}

// The number of ticks until b is to dial a, if a reports after `failed_after` ticks that it cannot
// reach b. The master does not see b where b lets itself be dialled.
int ticks_until_stranger_dials(int failed_after) {
  Harness h;
  h.found({"a"}, 0, 1);
  h.accept("b", "1.2.3.4");
  h.say("b", Harness::hello(1));
  h.say("b", protocol::Register{"5.6.7.8", 22});
  EXPECT_EQ(h.last<protocol::Dial>("a")->host, "5.6.7.8");
  for (int ticks = 0; ticks < 30; ++ticks) {
    if (ticks == failed_after)
      h.say("a", protocol::LinkReport{h.id("b"), LinkState::kUnreachable, "refused", 0});
    if (h.last<protocol::Dial>("b") != nullptr) return ticks;
    h.tick_with({"a", "b"});
  }
  return 30;
}

// Otherwise the Dial would show a stranger how soon an attempt at any address has failed.
TEST(DiallingForStrangers, TheOtherSideDialsAtAFixedTime) {
  for (const int failed_after : {0, 5, 11})
    EXPECT_EQ(ticks_until_stranger_dials(failed_after), Links::kTriedTicks) << failed_after;
  EXPECT_EQ(ticks_until_stranger_dials(20), 20) << "but not before the failure";
}

}  // namespace
}  // namespace pccl::master
