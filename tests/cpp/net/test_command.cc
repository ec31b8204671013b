#include "csrc/net/command.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "tests/cpp/net/net_test.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string content(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream all;
  all << file.rdbuf();
  return all.str();
}

class CommandTest : public testing::Test {
 protected:
  ~CommandTest() override {
    on(loop, [this] { return command.reset(), 0; });
  }
  void start(const std::string& line, const std::string& input = "", Duration limit = seconds(60)) {
    on(loop, [&] {
      ended.reset();
      const auto on_end = [this](const Status& status) {
        EXPECT_FALSE(ended) << "it ends once";
        ended = status.message;
        command.reset();  // as its owner may do
      };
      command = std::make_unique<Command>(loop, line, input, limit, on_end);
      EXPECT_FALSE(ended) << "it ends in a later turn";
      return 0;
    });
  }
  // The message of its end; empty after a success.
  std::string end() {
    EXPECT_TRUE(eventually(loop, [this] { return ended.has_value(); }));
    return on(loop, [this] { return ended.value_or("it has not ended"); });
  }
  std::string run(const std::string& line, const std::string& input = "") {
    start(line, input);
    return end();
  }
  // A pipe that a process holds open while it lives.
  struct Life {
    Life() { EXPECT_EQ(pipe(ends), 0); }
    ~Life() { ::close(ends[0]); }
    // Whether all who have the other end are gone within a long time.
    bool ends_soon() {
      ::close(ends[1]);
      pollfd asked{ends[0], POLLIN, 0};
      char letter = 0;
      return poll(&asked, 1, 30000) == 1 && ::read(ends[0], &letter, 1) == 0;
    }
    int ends[2];
  };

  const TempFolder folder;
  Loop loop{"test"};
  std::unique_ptr<Command> command;
  std::optional<std::string> ended;
};

TEST_F(CommandTest, GetsItsInput) {
  const std::string path = folder.path() + "/input", input(200000, 'x');
  EXPECT_EQ(run("cat > '" + path + "'", input), "");
  EXPECT_EQ(content(path), input);
}

TEST_F(CommandTest, ALineThatDoesNotReadItsInputSucceeds) {
  EXPECT_EQ(run("exit 0", std::string(200000, 'x')), "");
}

TEST_F(CommandTest, AFailureIsReported) {
  EXPECT_EQ(run("exit 3"), "has ended with status 3");
  EXPECT_EQ(run("kill -9 $$"), "was ended by Killed");
  EXPECT_EQ(run("/no/such/program 2> /dev/null"), "has ended with status 127");
}

TEST_F(CommandTest, ALongCommandIsKilledWithAllThatItHasStarted) {
  Life life;
  start("sleep 1000 & sleep 1000", "", milliseconds(100));
  EXPECT_EQ(end(), "took longer than 100 ms, and was killed");
  EXPECT_TRUE(life.ends_soon());
}

TEST_F(CommandTest, ProcessesThatItLeavesBehindEndWithIt) {
  Life life;
  EXPECT_EQ(run("sleep 1000 &"), "");
  EXPECT_TRUE(life.ends_soon());
}

TEST_F(CommandTest, ADestroyedOneIsKilledAndNotReported) {
  Life life;
  start("sleep 1000 & sleep 1000");
  on(loop, [this] { return command.reset(), 0; });
  EXPECT_TRUE(life.ends_soon());
  EXPECT_FALSE(on(loop, [this] { return ended.has_value(); }));
}

TEST_F(CommandTest, ALoopThatStopsLeavesItToItsOwner) {
  Life life;
  Loop other("other");
  std::unique_ptr<Command> theirs;
  on(other, [&] {
    theirs = std::make_unique<Command>(other, "sleep 1000", "", seconds(60),
                                       [](const Status&) { ADD_FAILURE(); });
    return 0;
  });
  other.stop();
  theirs.reset();
  EXPECT_TRUE(life.ends_soon());
}

TEST_F(CommandTest, ItsStandardOutputGoesNowhere) {
  EXPECT_EQ(run("test \"$(readlink /proc/$$/fd/1)\" = /dev/null"), "");
}

TEST_F(CommandTest, AProcessThatCannotStartIsReported) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  on(loop, [] { return 0; });
  const int highest = ::dup(0);
  ::close(highest);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(highest);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  start("exit 0");
  const std::string why = end();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(why, "cannot start: Too many open files");
}

}  // namespace
}  // namespace pccl::net
