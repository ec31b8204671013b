#include "master/members/admission.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::Hello;

class IntroductionTest : public testing::Test {
 protected:
  // A run whose first peer wants rank 1 of group 0 with min_peers 2.
  IntroductionTest() {
    Membership::Peer about;
    about.seen_host = "10.0.0.1";
    about.wish = 1;
    group.welcome(peer_id(1), about);
    group.register_peer(peer_id(1), {"", 1001});
  }
  protocol::Reject refusal(const Hello& hello) {
    return refuse(hello, &settings, &group, {2, 2}, 1).value_or(protocol::Reject{Code::kOk, ""});
  }
  const protocol::RunSettings settings;
  Membership group;
};

TEST_F(IntroductionTest, TheFirstPeerSetsTheTerms) {
  EXPECT_FALSE(refuse(Harness::hello(2), nullptr, nullptr, {}, 0).has_value());
  EXPECT_FALSE(refuse(Harness::hello(2, 0), &settings, &group, {2, 2}, 1).has_value());
  EXPECT_FALSE(refuse(Harness::hello(7, 0, 1), &settings, nullptr, {}, 0).has_value())
      << "another group";
}

TEST_F(IntroductionTest, ADifferenceIsShownWithBothValues) {
  EXPECT_EQ(refusal(Harness::hello(3)).text,
            "min_peers is 3 here and 2 for the other peers of peer group 0: give all the same");
  Hello hello = Harness::hello(2);
  hello.founders = 4;
  EXPECT_EQ(refusal(hello).text,
            "the world size is 4 here and 2 for the other peers of peer group 0: give all the "
            "same");
  hello = Harness::hello(2);
  hello.settings.peer_timeout = std::chrono::milliseconds(2500);
  hello.settings.on_peer_loss = protocol::LossPolicy::kRaise;
  EXPECT_EQ(refusal(hello).text,
            "peer_timeout is 2.5 s here and 10 s in this run. A run has the settings of its first "
            "peer: leave out PCCL_PEER_TIMEOUT (or the parameter of the URL), and this peer takes "
            "them from the run");
  EXPECT_EQ(refusal(hello).code, Code::kInvalidArgument);
}

TEST(Introduction, AnotherLaunchIsRefusedWhileAPeerOfTheFirstIsThere) {
  Membership group;
  const protocol::RunSettings settings;
  const auto refusal = [&](const Hello& hello) {
    return refuse(hello, &settings, &group, {2, 2}, 1).value_or(protocol::Reject{Code::kOk, ""});
  };
  Hello hello = Harness::hello(2, 0);
  hello.launch = "second";
  EXPECT_EQ(refusal(hello).code, Code::kOk) << "nobody is here";
  Membership::Peer about;
  about.seen_host = "10.0.0.1";
  about.launch = "first";
  group.welcome(kA, about);
  const auto reject = refusal(hello);
  EXPECT_EQ(reject.code, Code::kInvalidState);
  EXPECT_TRUE(contains(reject.text, "peers of another launch: peer 0.1")) << reject.text;
  EXPECT_TRUE(contains(reject.text, "ANOTHER_NAME")) << reject.text;
  hello.launch = "first";
  EXPECT_EQ(refusal(hello).code, Code::kOk);
  hello.launch = "";
  hello.rank = -1;
  EXPECT_EQ(refusal(hello).code, Code::kOk) << "a single peer joins any run";
  hello.launch = "second";
  group.set_connected(kA, false);
  EXPECT_EQ(refusal(hello).code, Code::kInvalidState) << "it may come back";
  group.remove(kA, "it was away for long");
  EXPECT_EQ(refusal(hello).code, Code::kOk);
}

TEST_F(IntroductionTest, RanksAreInRangeAndTakenOnce) {
  EXPECT_EQ(refusal(Harness::hello(2, 2)).text,
            "rank 2 is wanted in a world of 2: ranks go from 0 to 1");
  EXPECT_EQ(refusal(Harness::hello(2, 1)).text,
            "rank 1 is already taken by peer 1.1 (10.0.0.1:1001): two processes were started with "
            "the same rank");
  group.set_connected(peer_id(1), false);
  EXPECT_EQ(refusal(Harness::hello(2, 1)).code, Code::kOk) << "it was started again";
  group.set_connected(peer_id(1), true);
  group.admit({peer_id(1)});
  EXPECT_EQ(refusal(Harness::hello(2, 1)).code, Code::kOk) << "wishes count at the founding only";
  EXPECT_EQ(refusal(Harness::hello(2, 5)).code, Code::kOk);
  Hello late = Harness::hello(2);
  late.founders = 9;
  EXPECT_EQ(refusal(late).code, Code::kOk) << "and so does the world size";
}

TEST_F(IntroductionTest, ValuesOutOfRangeAreRefused) {
  EXPECT_TRUE(contains(refusal(Harness::hello(0)).text, "min_peers is 0, allowed are 1 to 128"));
  EXPECT_TRUE(contains(refusal(Harness::hello(129)).text, "min_peers is 129"));
  Hello hello = Harness::hello(2);
  hello.founders = 1;
  EXPECT_TRUE(contains(refusal(hello).text, "a world of 1 is to begin, allowed are 2 (min_peers)"));
  hello.founders = 129;
  EXPECT_TRUE(contains(refusal(hello).text, "to 128"));
  hello = Harness::hello(2);
  hello.settings.peer_timeout = std::chrono::milliseconds(5);
  EXPECT_TRUE(contains(refusal(hello).text, "peer_timeout is 5 ms, allowed are 100 ms to 60 min"));
  hello = Harness::hello(2);
  hello.run = "";
  EXPECT_TRUE(contains(refusal(hello).text, "name of the run"));
}

TEST_F(IntroductionTest, NamesThatCannotBeShownAreRefusedWithWhatTheyHave) {
  Hello hello = Harness::hello(2);
  hello.run = "x\"\npccl 00:00:00.000 error: forged";
  EXPECT_EQ(refusal(hello).code, Code::kInvalidArgument);
  EXPECT_EQ(refusal(hello).text,
            "the name of the run has characters that cannot be shown: \"x\"\\npccl 00:00:00.000 "
            "error: forged\". Allowed is UTF-8 without control and formatting characters");
  hello.run = "東京";
  EXPECT_EQ(refusal(hello).code, Code::kOk);
  hello.launch = "\u202e";
  EXPECT_TRUE(contains(refusal(hello).text, "the name of the launch has characters")) << "reversed";
  hello.run = "";
  EXPECT_EQ(refusal(hello).text, "the name of the run is empty");
}

TEST_F(IntroductionTest, AFullGroupSaysSo) {
  for (uint32_t i = 2; i <= protocol::kMembersMax; ++i) group.welcome(peer_id(i), {});
  EXPECT_EQ(refusal(Harness::hello(2)).text,
            "peer group 0 is full: it has 128 peers, the most there can be");
}

TEST_F(IntroductionTest, AFurtherGroupOfARunThatHasAllItCanIsRefused) {
  const Hello hello = Harness::hello(2, -1, 7);
  const auto refusal = [&](size_t group_count) {
    return refuse(hello, &settings, nullptr, {}, group_count)
        .value_or(protocol::Reject{Code::kOk, ""});
  };
  EXPECT_EQ(refusal(protocol::kGroupsMax - 1).code, Code::kOk);
  EXPECT_EQ(refusal(protocol::kGroupsMax).code, Code::kInvalidState);
  EXPECT_EQ(refusal(protocol::kGroupsMax).text,
            "run \"run\" has 1024 peer groups, and 1024 are the most there can be: peer group 7 "
            "would be one more. Give the same peer_group to all who work together, or name another "
            "run (PCCL_MASTER=pccl://host:port/ANOTHER_NAME)");
  EXPECT_FALSE(
      refuse(Harness::hello(2), &settings, &group, {2, 2}, protocol::kGroupsMax).has_value())
      << "that group is there";
}

// ---- Versions ----

TEST(Introduction, WithoutACommonVersionBothAreNamed) {
  EXPECT_EQ(refuse_versions({8, 10}, "", {10, 12}), std::nullopt);
  const auto reject = refuse_versions({8, 9}, "pccl 0.1", {10, 12});
  ASSERT_TRUE(reject.has_value());
  EXPECT_EQ(reject->code, Code::kProtocol);
  EXPECT_EQ(reject->text,
            "version mismatch: this peer (pccl 0.1) speaks versions 8 to 9 of the pccl protocol, "
            "the master speaks versions 10 to 12: install a later pccl for this peer (pccl 0.1)");
}

TEST(Introduction, ARunKeepsTheVersionItWasOpenedWith) {
  Harness h(9);
  protocol::Hello hello = Harness::hello(2);
  hello.versions = {8, 12};
  h.enlist("a", hello);
  EXPECT_EQ(h.last<protocol::Welcome>("a")->version, 9);
  hello.versions = {9, 9};
  h.enlist("b", hello);
  EXPECT_EQ(h.last<protocol::Welcome>("b")->version, 9);
  h.take();
  hello.versions = {10, 12};
  h.greet("c", hello);
  EXPECT_EQ(h.take(),
            (Lines{"c < Reject protocol: version mismatch: this peer (pccl 0.1) speaks versions 10 "
                   "to 12 of the pccl protocol, run \"run\" speaks version 9: run \"run\" keeps "
                   "its version until it ends, so install the pccl that its other peers have, or "
                   "name another run",
                   "c closed"}));
  hello.versions = {7, 7};
  h.greet("d", hello);
  EXPECT_EQ(h.take(),
            (Lines{"d < Reject protocol: version mismatch: this peer (pccl 0.1) speaks "
                   "version 7 of the pccl protocol, run \"run\" speaks version 9: install "
                   "a later pccl for this peer (pccl 0.1)",
                   "d closed"}));
}

TEST(Introduction, AMemberThatIsBackWithoutTheVersionOfTheRunIsRefused) {
  Harness h(9);
  protocol::Hello hello = Harness::hello(1);
  hello.versions = {9, 9};
  h.enlist("a", hello);
  h.release();
  h.close("a");
  h.take();
  protocol::Resume resume = h.resume("a", epoch(1));
  resume.versions = {10, 10};
  h.come_back("a", resume);
  EXPECT_TRUE(contains(h.take().at(0),
                       "speaks version 10 of the pccl protocol, run \"run\" speaks "
                       "version 9"));
  resume.versions = {8, 10};
  h.come_back("a", resume);
  EXPECT_EQ(h.take().at(0), "a < Resumed");
}

}  // namespace
}  // namespace pccl::master
