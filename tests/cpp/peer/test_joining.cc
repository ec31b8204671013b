#include "csrc/peer/joining.h"

#include <gtest/gtest.h>

namespace pccl::peer {
namespace {

using std::chrono::seconds;

class JoiningTest : public testing::Test {
 protected:
  JoiningTest() {
    context_.effects = &effects_;
    context_.linked = true;
    context_.options.run = "demo";
    context_.options.min_peers = 3;
    context_.settings.peer_timeout = seconds(10);
    context_.options.join_timeout = seconds(60);
    context_.options.master_text = "host:1";
  }
  void begin() {
    joining_.begin(7);
    membership_.enter(Phase::kConnecting);
  }
  void find_master() {
    membership_.enter(Phase::kHandshaking);
    membership_.enter(Phase::kWelcomed);
  }
  Status after(Duration later) {
    context_.now = context_.now + later;
    return joining_.on_time("connection refused");
  }
  // The texts that were logged since the last call.
  std::vector<std::string> notes() {
    std::vector<std::string> all;
    for (const Effect& effect : effects_) {
      if (const auto* log = std::get_if<Log>(&effect)) all.push_back(log->text);
    }
    effects_.clear();
    return all;
  }

  Context context_;
  Effects effects_;
  Membership membership_{context_};
  Joining joining_{context_, membership_};
};

using Notes = std::vector<std::string>;

TEST_F(JoiningTest, HasNothingToWaitForBeforeItBegins) {
  EXPECT_EQ(joining_.deadline(), std::nullopt);
  EXPECT_TRUE(after(seconds(1000)).ok());
  begin();
  EXPECT_EQ(joining_.handle(), 7u);
  EXPECT_EQ(*joining_.deadline(), context_.now + seconds(1));
}

TEST_F(JoiningTest, WarnsOnceThatThereIsNoMasterAndGivesItUp) {
  begin();
  EXPECT_TRUE(after(seconds(1)).ok());
  EXPECT_EQ(notes(),
            (Notes{"still no master at host:1 (connection refused); trying for 9 s more"}));
  EXPECT_EQ(*joining_.deadline(), context_.now + seconds(9));
  EXPECT_TRUE(after(seconds(8)).ok());
  EXPECT_EQ(notes(), Notes{});
  const Status status = after(seconds(1));
  EXPECT_EQ(status.code, Code::kMasterLost);
  EXPECT_EQ(status.message,
            "no master at host:1 within 10 s (connection refused): is `pccl master` running there, "
            "and can its port be reached from here?");
}

TEST_F(JoiningTest, OneRefusalOfItsTokenIsNotBelieved) {
  context_.options.secured = true;
  begin();
  EXPECT_FALSE(joining_.on_refusal());
  EXPECT_TRUE(joining_.on_refusal());
}

TEST_F(JoiningTest, NoWarningMeansNoEndOfIt) {
  begin();
  EXPECT_TRUE(joining_.on_time("connection refused").ok());
  find_master();
  joining_.on_welcome();
  EXPECT_EQ(notes(), Notes{}) << "nobody was warned";
}

TEST_F(JoiningTest, AWarningEndsWithTheAnswerOfTheMaster) {
  begin();
  EXPECT_TRUE(after(seconds(1)).ok());
  context_.now = context_.now + seconds(2);
  find_master();
  notes();
  joining_.on_welcome();
  ASSERT_EQ(effects_.size(), 1u);
  EXPECT_EQ(std::get<Log>(effects_[0]).level, LogLevel::kWarning);
  EXPECT_EQ(notes(), (Notes{"the master at host:1 answers after 3 s"}));
  joining_.on_welcome();
  EXPECT_EQ(notes(), Notes{});
}

TEST_F(JoiningTest, AWarningEndsWithTheAdmission) {
  begin();
  find_master();
  joining_.on_notice("peer 1.1 cannot reach it");
  notes();
  context_.now = context_.now + seconds(3);
  membership_.enter(Phase::kRegistered);
  membership_.enter(Phase::kMember);
  joining_.on_admission();
  ASSERT_EQ(effects_.size(), 1u);
  EXPECT_EQ(std::get<Log>(effects_[0]).level, LogLevel::kWarning);
  EXPECT_EQ(notes(), (Notes{"admitted after 3 s"}));
  joining_.on_admission();
  EXPECT_EQ(notes(), Notes{});
}

TEST_F(JoiningTest, WaitsForItsAdmissionAndLeavesWhenThatTakesTooLong) {
  begin();
  find_master();
  EXPECT_EQ(*joining_.deadline(), context_.now + seconds(60));
  EXPECT_TRUE(after(seconds(59)).ok());
  EXPECT_TRUE(effects_.empty());
  const Status status = after(seconds(1));
  EXPECT_EQ(status.code, Code::kTooFewPeers);
  EXPECT_EQ(status.message,
            "not admitted to run \"demo\" within 60 s; it begins when 3 peers are "
            "there, later ones are admitted when all members call pccl.update_topology()");
  ASSERT_EQ(effects_.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<protocol::Leave>(std::get<SendMaster>(effects_[0]).message));
}

TEST_F(JoiningTest, RepeatsNoNoticeAndEndsWithTheLast) {
  begin();
  find_master();
  joining_.on_notice("peer 1.1 cannot reach it");
  joining_.on_notice("peer 1.1 cannot reach it");
  EXPECT_EQ(notes(),
            (Notes{"not admitted yet: peer 1.1 cannot reach it; this process gives up in 60 s"}));
  const Status status = after(seconds(60));
  EXPECT_TRUE(status.message.ends_with("the master's last word was: peer 1.1 cannot reach it"))
      << status.message;
}

TEST_F(JoiningTest, DoesNotSayThatItGivesUpIfItNeverDoes) {
  context_.options.join_timeout = kForever;
  begin();
  find_master();
  joining_.on_notice("the others are late");
  EXPECT_EQ(notes(), (Notes{"not admitted yet: the others are late"}));
}

TEST_F(JoiningTest, IsOverForAMember) {
  begin();
  find_master();
  membership_.enter(Phase::kRegistered);
  membership_.enter(Phase::kMember);
  EXPECT_EQ(joining_.deadline(), std::nullopt);
  EXPECT_TRUE(after(seconds(1000)).ok());
  joining_.on_notice("update_topology waits for more peers");
  EXPECT_EQ(notes(), (Notes{"update_topology waits for more peers"}));
}

TEST_F(JoiningTest, AHelloHasTheGivenSettings) {
  context_.options.given.pattern = protocol::PatternChoice::kDirect;
  const protocol::Hello hello = joining_.hello();
  EXPECT_EQ(hello.run, "demo");
  EXPECT_EQ(hello.founders, 3u) << "min_peers, unless it is given";
  EXPECT_EQ(hello.settings, context_.options.given);
}

// A master that was started again may have forgotten the settings that this peer has inherited.
TEST_F(JoiningTest, AfterWelcomeAHelloGivesTheSettingsOfTheRun) {
  begin();
  find_master();
  context_.settings.call_timeout = seconds(60);
  EXPECT_EQ(joining_.hello().settings, give_all(context_.settings));
}

TEST_F(JoiningTest, ARunWithImpossibleSettingsIsNotJoined) {
  protocol::Welcome welcome{{8}, 77, 1, "10.0.0.2", false};
  EXPECT_EQ(joining_.check(welcome), Status{});
  welcome.settings.peer_timeout = Duration{0};
  EXPECT_EQ(joining_.check(welcome).message,
            "Welcome to a run whose peer_timeout is 0 ms, allowed are 100 ms to 60 min");
}

}  // namespace
}  // namespace pccl::peer
