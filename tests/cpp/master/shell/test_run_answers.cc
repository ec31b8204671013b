#include "master/shell/run_answers.h"

#include "master/shell/shell.h"
#include "tests/cpp/master/asker.h"
#include "tests/cpp/master/client.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

struct RunAnswersTest : testing::Test {
  RunAnswersTest() {
    auto opened = Shell::open({"127.0.0.1", 0}, {.path = temporary.path() + "/journal"});
    EXPECT_TRUE(opened.ok()) << opened.status().message;
    shell = std::move(opened.value());
  }
  std::string status(const std::string& run = "") const {
    const std::string named = run.empty() ? "" : ",\"run\":\"" + run + "\"";
    return Asker(temporary.path() + "/journal.sock").ask("{\"command\":\"status\"" + named + "}\n");
  }
  std::string status_with_history() const {
    return Asker(temporary.path() + "/journal.sock")
        .ask("{\"command\":\"status\",\"history\":true}\n");
  }
  const TempFolder temporary;
  std::unique_ptr<Shell> shell;
};

TEST_F(RunAnswersTest, TheOnlyRunNeedsNoName) {
  EXPECT_EQ(status(),
            "{\"error\":\"this master has no run under way: `pccl runs` lists those that are "
            "over\"}\n");
  Client peer(shell->port());
  peer.join("night");
  for (const char* run : {"", "night"}) {
    const std::string shown = status(run);
    EXPECT_TRUE(contains(shown, "\"run\":\"night\"")) << shown;
    EXPECT_TRUE(contains(shown, "\"code\":\"nothing_wrong\"")) << shown;
  }
}

TEST_F(RunAnswersTest, AStatusHasTheLastHourIfItIsAskedFor) {
  Client peer(shell->port());
  peer.join("night");
  EXPECT_FALSE(contains(status(), "scalars_history"));
  const std::string shown = status_with_history();
  EXPECT_TRUE(contains(shown, "\"scalars_history\":{}")) << shown.substr(0, 1000);
}

TEST_F(RunAnswersTest, OneOfSeveralRunsMustBeNamed) {
  Client one(shell->port()), other(shell->port());
  one.join("day");
  other.join("night");
  EXPECT_EQ(status(),
            "{\"error\":\"name one run, because these runs are under way: \\\"day\\\", "
            "\\\"night\\\"\"}\n");
  EXPECT_TRUE(contains(status("day"), "\"run\":\"day\""));
  EXPECT_EQ(status("week"),
            "{\"error\":\"run \\\"week\\\" is not known to this master; these runs are under way: "
            "\\\"day\\\", \\\"night\\\"\"}\n");
}

TEST_F(RunAnswersTest, ARunThatIsOverIsSaidToBe) {
  Client peer(shell->port());
  peer.join("night");
  peer.say(protocol::Vote{0, kSync, offer(1, {1}), peer.epoch()});
  peer.hear_a<protocol::Answer>();
  peer.say(protocol::Leave{});
  ASSERT_TRUE(peer.hears_the_end());
  const std::string shown = status("night");
  EXPECT_TRUE(contains(shown, "is over (`pccl runs` shows its shared state)")) << shown;
}

TEST_F(RunAnswersTest, APeerOfAForeignVersionIsAFindingOfTheOnlyRun) {
  Client peer(shell->port()), foreign(shell->port());
  peer.join("night");
  protocol::Hello hello = Harness::hello(1);
  hello.run = "night";
  hello.versions = {9000, 9001};
  foreign.say(hello);
  ASSERT_TRUE(foreign.hear_a<protocol::Reject>().has_value());
  const std::string shown = status();
  EXPECT_TRUE(contains(shown, "version_or_terms_refused")) << shown;
}

}  // namespace
}  // namespace pccl::master
