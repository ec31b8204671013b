#include "csrc/peer/master_search.h"

#include <gtest/gtest.h>

namespace pccl::peer {
namespace {

using std::chrono::seconds;

class MasterSearchTest : public testing::Test {
 protected:
  MasterSearchTest() {
    context_.effects = &effects_;
    context_.options.master_text = "host:1";
    context_.options.master_timeout = seconds(60);
  }
  void pass(Duration duration) {
    context_.now = context_.now + duration;
    search_.check();
  }
  // Takes the lines that were logged.
  std::vector<std::string> said() {
    std::vector<std::string> out;
    for (const Effect& effect : effects_) out.push_back(std::get<Log>(effect).text);
    effects_.clear();
    return out;
  }

  using Lines = std::vector<std::string>;
  const Lines broke_{"connection to the master at host:1 broke: reset; trying again for 60 s"};
  Context context_;
  Effects effects_;
  MasterSearch search_{context_};
};

TEST_F(MasterSearchTest, IsReportedAtBothEnds) {
  search_.failed("refused");
  EXPECT_FALSE(search_.under_way());
  EXPECT_EQ(search_.why(), "refused");
  EXPECT_EQ(search_.deadline(), std::nullopt);
  search_.begin("reset", false, false);
  EXPECT_EQ(said(), broke_);
  pass(seconds(1));
  search_.begin("refused", false, false);
  EXPECT_EQ(said(), Lines{});
  EXPECT_EQ(search_.why(), "refused");
  pass(seconds(1));
  search_.found();
  EXPECT_EQ(said(), Lines{"the master at host:1 is back after 2 s"});
  EXPECT_FALSE(search_.under_way());
  search_.give_up({Code::kKicked, "why", {}});
  EXPECT_EQ(said(), Lines{});
}

TEST_F(MasterSearchTest, EndsWhenItTakesTooLong) {
  EXPECT_TRUE(search_.over().ok());
  search_.begin("reset", false, false);
  said();
  EXPECT_EQ(*search_.deadline(), context_.now + seconds(60));
  pass(seconds(60) - Duration{1});
  EXPECT_TRUE(search_.over().ok());
  pass(Duration{1});
  const Status late = search_.over();
  EXPECT_EQ(late.code, Code::kMasterLost);
  EXPECT_TRUE(late.message.starts_with("no master at host:1 for 60 s (reset); ")) << late.message;
  EXPECT_TRUE(late.message.ends_with("Join again when the master is back")) << late.message;
  search_.give_up(late);
  EXPECT_EQ(said(), Lines{"the search for the master is over: " + late.message});
}

TEST_F(MasterSearchTest, TheLossOfAHostedMasterEndsTheRun) {
  context_.options.hosted = true;
  search_.begin("reset", false, false);
  EXPECT_NE(said().at(0).find("It is in the process of rank 0"), std::string::npos);
  pass(seconds(60));
  EXPECT_NE(search_.over().message.find("start the whole run again"), std::string::npos);
}

TEST_F(MasterSearchTest, TheSearchForAHostedMasterEndsWhenItsPortIsClosed) {
  context_.options.hosted = true;
  search_.begin("reset", false, false);
  pass(std::chrono::milliseconds(100));
  search_.begin("refused", false, true);
  EXPECT_TRUE(search_.over().ok());
  pass(std::chrono::milliseconds(299));
  search_.begin("refused", false, true);
  EXPECT_TRUE(search_.over().ok()) << "the two are too close to each other";
  pass(std::chrono::milliseconds(1));
  search_.begin("refused", false, true);
  const Status over = search_.over();
  EXPECT_EQ(over.code, Code::kMasterLost);
  EXPECT_TRUE(over.message.starts_with("no master at host:1 for 400 ms (refused); "))
      << over.message;
}

TEST_F(MasterSearchTest, AnAttemptWithAnotherEndBreaksTheRowOfRefusals) {
  context_.options.hosted = true;
  search_.begin("reset", false, false);
  search_.begin("refused", false, true);
  pass(seconds(1));
  search_.begin("reset", false, false);
  pass(seconds(1));
  search_.begin("refused", false, true);
  EXPECT_TRUE(search_.over().ok());
}

TEST_F(MasterSearchTest, ARefusalBeforeTheMasterIsBackCountsForNothing) {
  context_.options.hosted = true;
  search_.begin("refused", false, true);
  search_.found();
  pass(seconds(1));
  search_.begin("refused", false, true);
  EXPECT_TRUE(search_.over().ok());
}

TEST_F(MasterSearchTest, TheSearchForASeparateMasterGoesOnThoughItsPortIsClosed) {
  search_.begin("refused", false, true);
  pass(seconds(30));
  search_.begin("refused", false, true);
  EXPECT_TRUE(search_.over().ok());
}

TEST_F(MasterSearchTest, TheSearchForAHostedMasterIsNoLongerThanThePeerTimeout) {
  context_.options.hosted = true;
  context_.settings.peer_timeout = seconds(7);
  search_.begin("no answer", false, false);
  EXPECT_EQ(*search_.deadline(), context_.now + seconds(7));
  pass(seconds(7));
  EXPECT_EQ(search_.over().code, Code::kMasterLost);
}

TEST_F(MasterSearchTest, ThatIsPlannedIsNoNews) {
  search_.begin("there is a new token", true, false);
  pass(seconds(1));
  search_.begin("the new token is unknown", true, false);
  search_.found();
  EXPECT_EQ(said(), Lines{});
}

TEST_F(MasterSearchTest, ThatIsPlannedIsReportedOnceSomethingElseGoesWrong) {
  search_.begin("there is a new token", true, false);
  pass(seconds(1));
  search_.begin("reset", false, false);
  EXPECT_EQ(said(), broke_);
  search_.begin("the new token is unknown", true, false);
  pass(seconds(1));
  search_.found();
  EXPECT_EQ(said(), Lines{"the master at host:1 is back after 2 s"});
  search_.begin("reset", false, false);
  EXPECT_EQ(said(), broke_);
}

}  // namespace
}  // namespace pccl::peer
