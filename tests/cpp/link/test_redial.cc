#include "csrc/link/redial.h"

#include <gtest/gtest.h>

namespace pccl::link {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RedialTest : public testing::Test {
 protected:
  // Addresses of hosts that are not private.
  static std::vector<Endpoint> hosts(int count) {
    std::vector<Endpoint> hosts;
    for (int host = 1; host <= count; ++host) hosts.push_back(at(host));
    return hosts;
  }
  static Endpoint at(int host) { return {"1.0.0." + std::to_string(host), 48201}; }
  static ConnectionId id(uint64_t number) { return {number}; }

  void begin(int count, std::optional<Endpoint> reached = {}) {
    redial.begin_pass(hosts(count), reached, now);
    redial.check();
  }
  // Begins the next attempt, with the next number. Returns its address and its time.
  std::pair<Endpoint, Duration> attempt() {
    const Duration timeout = redial.attempt(id(++made));
    redial.check();
    return {redial.attempts().back().at, timeout};
  }
  using Made = std::pair<Endpoint, Duration>;
  void fail(uint64_t number, LinkFault fault = LinkFault::kNoAnswer, bool connected = false) {
    redial.failed(id(number), "no " + std::to_string(number), fault, connected);
    redial.check();
  }

  Redial redial{protocol::kPeerTimeoutDefault};  // 10 s: a single address has 5 s
  Instant now{seconds(100)};
  uint64_t made = 0;
};

TEST_F(RedialTest, AConnectionTakesHalfOfThePeerTimeoutOrFiveSeconds) {
  EXPECT_EQ(Redial::connect_timeout(seconds(3)), milliseconds(1500));
  EXPECT_EQ(Redial::connect_timeout(seconds(60)), seconds(5));
  begin(1);
  EXPECT_EQ(attempt(), (Made{at(1), seconds(5)}));
  EXPECT_FALSE(redial.has_more());
  EXPECT_EQ(redial.deadline(), std::nullopt);
}

TEST_F(RedialTest, APauseTakesATickButAtMostASecond) {
  using Case = std::pair<Duration, Duration>;
  for (const auto& [peer_timeout, pause] :
       {Case{seconds(2), milliseconds(100)}, Case{seconds(600), seconds(1)}}) {
    redial = Redial(peer_timeout);
    begin(1);
    attempt();
    fail(made);
    redial.pause(now);
    redial.check();
    EXPECT_TRUE(redial.pauses());
    EXPECT_EQ(redial.deadline(), now + pause);
    begin(1);
    EXPECT_FALSE(redial.pauses());
    EXPECT_EQ(redial.why(), "") << "of the last pass";
  }
}

TEST_F(RedialTest, TheFirstAddressIsTriedAlone) {
  begin(3);
  EXPECT_EQ(attempt(), (Made{at(1), milliseconds(2500)}));
  EXPECT_FALSE(redial.may_attempt(now));
  EXPECT_EQ(redial.deadline(), now + seconds(5));
  EXPECT_TRUE(redial.may_attempt(now + seconds(5)));
  fail(1);
  EXPECT_TRUE(redial.may_attempt(now));
}

TEST_F(RedialTest, APrivateFirstAddressIsAloneForAShortTime) {
  redial.begin_pass({{"10.0.0.1", 1}, {"1.0.0.2", 1}}, {}, now);
  attempt();
  EXPECT_EQ(redial.deadline(), now + milliseconds(250));
  EXPECT_FALSE(redial.may_attempt(now + milliseconds(249)));
  EXPECT_TRUE(redial.may_attempt(now + milliseconds(250)));
}

TEST_F(RedialTest, TheOtherAddressesAreTriedTwoAtATime) {
  begin(5);
  attempt();
  fail(1);
  for (const int host : {2, 3}) {
    EXPECT_TRUE(redial.may_attempt(now));
    EXPECT_EQ(attempt(), (Made{at(host), milliseconds(1250)}))
        << "two pairs share the second half of the time";
  }
  EXPECT_EQ(redial.deadline(), std::nullopt);
  EXPECT_FALSE(redial.may_attempt(now));
  redial.drop(id(2));
  EXPECT_TRUE(redial.may_attempt(now));
  redial.drop(id(99));  // of another connection
  EXPECT_EQ(redial.attempts().size(), 1u);
}

TEST_F(RedialTest, AnAddressThatWorkedIsFirstAndKeepsTheWholeTime) {
  begin(4, at(3));
  EXPECT_EQ(attempt(), (Made{at(3), seconds(5)}));
  EXPECT_EQ(redial.deadline(), now + milliseconds(2500));
  now = now + milliseconds(2500);
  EXPECT_EQ(attempt(), (Made{at(1), milliseconds(1250)}));
  EXPECT_TRUE(redial.may_attempt(now)) << "two besides the first one";
  EXPECT_EQ(attempt(), (Made{at(2), milliseconds(1250)}));
  EXPECT_FALSE(redial.may_attempt(now));
  fail(1);
  EXPECT_FALSE(redial.may_attempt(now)) << "two without it";
}

TEST_F(RedialTest, AnAddressThatTheMasterDoesNotNameAnyMoreIsNotTried) {
  begin(2, at(7));
  EXPECT_EQ(attempt(), (Made{at(1), milliseconds(2500)}));
}

TEST_F(RedialTest, APassKeepsAllErrorsAndTheFaultOfTheAddressThatTheMasterNamesFirst) {
  begin(2, at(2));
  attempt();
  fail(1, LinkFault::kAnotherPeer);
  EXPECT_EQ(redial.fault(), LinkFault::kOther);
  attempt();
  fail(2, LinkFault::kNoAnswer);
  EXPECT_EQ(redial.fault(), LinkFault::kNoAnswer);
  EXPECT_EQ(redial.why(), "no 1; no 2");
  EXPECT_FALSE(redial.has_more());
}

TEST_F(RedialTest, AKnownAddressThatClosesEndsThePassAFewTimes) {
  for (int pass = 0; pass < Redial::kClosedPassesMax; ++pass) {
    begin(3, at(2));
    attempt();
    fail(made, LinkFault::kOther, true);
    EXPECT_FALSE(redial.has_more()) << pass;
    redial.pause(now);
  }
  begin(3, at(2));
  attempt();
  fail(made, LinkFault::kOther, true);
  EXPECT_TRUE(redial.has_more()) << "it may be another machine by now";
}

TEST_F(RedialTest, AnotherFailureDoesNotEndThePass) {
  begin(3, at(2));
  attempt();
  fail(made, LinkFault::kOther, false);
  EXPECT_TRUE(redial.has_more()) << "it did not connect";
  begin(3, at(2));
  attempt();
  fail(made, LinkFault::kAnotherPeer, true);
  EXPECT_TRUE(redial.has_more()) << "another machine answers there";
  attempt();
  fail(made, LinkFault::kOther, true);
  EXPECT_TRUE(redial.has_more()) << "this address has not worked before";
}

TEST_F(RedialTest, APeerThatIsGivenUpIsNotTried) {
  begin(2);
  redial.give_up("small packets only", LinkFault::kOnlySmallPackets);
  redial.check();
  EXPECT_FALSE(redial.has_more());
  EXPECT_EQ(redial.why(), "small packets only");
  EXPECT_EQ(redial.fault(), LinkFault::kOnlySmallPackets);
  redial.pause(now);
  redial.check();
}

}  // namespace
}  // namespace pccl::link
