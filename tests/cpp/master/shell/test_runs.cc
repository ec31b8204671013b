#include "master/shell/runs.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <list>

#include "master/shell/shell.h"
#include "tests/cpp/master/client.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

using protocol::kRunsMax;
using protocol::kRunsPerNetworkMax;

class ShellRunsTest : public testing::Test {
 protected:
  ShellRunsTest() { start(); }
  void start() {
    shell.reset();
    auto opened = Shell::open({"127.0.0.1", 0}, {.path = journal()});
    ASSERT_TRUE(opened.ok()) << opened.status().message;
    shell = std::move(opened.value());
  }
  std::string journal() const { return folder_.path() + "/journal"; }
  size_t journal_bytes() const { return std::filesystem::file_size(journal()); }
  static protocol::Hello hello(const std::string& run, uint32_t founders = 2) {
    protocol::Hello hello = Harness::hello(founders);
    hello.run = run;
    hello.settings.peer_timeout = std::chrono::hours(1);
    hello.join_timeout_ms = 3600000;
    return hello;
  }
  // A run of one peer, from its first message to its last.
  void live_and_end(const std::string& run, const std::string& from, uint64_t revision) {
    Client peer(shell->port(), from);
    peer.join(run);
    if (revision > 0) {
      peer.say(protocol::Vote{0, kSync, offer(revision, {revision}), peer.epoch()});
      const auto answer = peer.hear_a<protocol::Answer>();
      ASSERT_TRUE(answer.has_value());
      ASSERT_EQ(answer->code, Code::kOk) << answer->text;
    }
    peer.say(protocol::Leave{});
    ASSERT_TRUE(peer.hears_the_end()) << run;
  }

  // A folder in memory, where waiting for the disk costs nothing.
  static std::string fast_folder() {
    return std::filesystem::exists("/dev/shm") ? "/dev/shm" : testing::TempDir();
  }

  const TempFolder folder_{fast_folder()};
  std::unique_ptr<Shell> shell;
};

// A slow disk: the first peer of a run is gone before the run is recorded.
TEST(Runs, AConnectionThatHasClosedBeforeItsRunBeganIsNotAnswered) {
  const ConnectionId gone{1}, here{2};
  const std::deque<Event> events = {Accepted{gone, "10.0.0.1"}, Received{gone, Harness::hello(1)},
                                    Accepted{here, "10.0.0.2"}, Closed{gone, "reset"},
                                    Received{here, Harness::hello(1)}};
  const std::deque<Event> left = of_open_connections(events);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(std::get<Accepted>(left[0]).connection, here);
  EXPECT_EQ(std::get<Received>(left[1]).connection, here);
}

// Such peers come and go without end, and the master outlives them all.
TEST_F(ShellRunsTest, PeersThatGoAtOnceDoNotEndTheMaster) {
  for (int i = 0; i < 300; ++i) {
    Client peer(shell->port(), "127.0.0.1");
    peer.say(hello("run " + std::to_string(i % 7)));
  }
  live_and_end("afterwards", "127.0.0.1", 0);
}

TEST_F(ShellRunsTest, AThousandNamesDoNotFillAMaster) {
  std::list<Client> pending;
  for (size_t i = 0; i < kRunsMax; ++i) {
    Client& one = pending.emplace_back(shell->port(), "127.0.0." + std::to_string(2 + i % 4));
    one.say(hello("run " + std::to_string(i)));
    ASSERT_TRUE(one.hear_a<protocol::Welcome>().has_value()) << i;
  }
  Client peer(shell->port());
  peer.join("new");
  const auto kicked = pending.front().hear_a<protocol::Kicked>();
  ASSERT_TRUE(kicked.has_value());
  EXPECT_TRUE(contains(kicked->text, "this master needed the room for another run"))
      << kicked->text;
}

TEST_F(ShellRunsTest, AFinishedRunIsALineThatItsNameBringsBack) {
  live_and_end("prod", "127.0.0.1", 5);
  start();
  Client peer(shell->port());
  peer.join("prod");
  peer.say(protocol::Vote{0, kSync, offer(3, {9}), peer.epoch()});
  const auto answer = peer.hear_a<protocol::Answer>();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, Code::kSharedState) << "the run had agreed on revision 5";
  EXPECT_TRUE(contains(answer->text, "revision 5")) << answer->text;
}

TEST_F(ShellRunsTest, ARunThatNobodyKnowsAnyMoreIsForgottenFromTheJournalToo) {
  for (int i = 0; i < 50; ++i) live_and_end("r" + std::to_string(i), "127.0.0.1", 0);
  start();
  const size_t with_lines = journal_bytes();
  EXPECT_LT(with_lines, 50 * 100u) << "a line is short";
  EXPECT_GT(with_lines, 50 * 20u) << "and it is there";
}

size_t resident_bytes() {
  malloc_trim(0);
  size_t pages = 0;
  std::ifstream statm("/proc/self/statm");
  statm >> pages >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Half of the runs agree on a shared state. Halfway, the registry is full for each of their
// networks; from then on memory may not grow.
TEST_F(ShellRunsTest, TenThousandRunsComeAndGo) {
  constexpr size_t kRuns = 10000, kNetworks = 5;
  static_assert(kRuns / 2 >= kNetworks * kRunsPerNetworkMax / 2 &&
                kRuns / 2 / kNetworks < kRunsPerNetworkMax);
  size_t half_way = 0, journal_most = 0;
  for (size_t i = 0; i < kRuns; ++i) {
    const std::string from = "127.0.0." + std::to_string(1 + i / 2 % kNetworks);
    live_and_end("run " + std::to_string(i), from, i % 2 == 0 ? 1 + i : 0);
    if (HasFatalFailure()) return;
    journal_most = std::max(journal_most, journal_bytes());
    if (i == kNetworks * kRunsPerNetworkMax + 200) half_way = resident_bytes();
  }
  const size_t end = resident_bytes();
#ifndef PCCL_SANITIZED  // a sanitizer keeps freed memory
  EXPECT_LT(static_cast<double>(end), 1.05 * static_cast<double>(half_way));
#endif
  EXPECT_LE(journal_most, 4u << 20);
  RecordProperty("resident_bytes_half_way", std::to_string(half_way));
  RecordProperty("resident_bytes_at_the_end", std::to_string(end));
  RecordProperty("journal_bytes_most", std::to_string(journal_most));
  Client peer(shell->port());
  peer.join("new");
  start();
  live_and_end("after a restart", "127.0.0.1", 0);
  Client old(shell->port());
  old.join("run 0");
  old.say(protocol::Vote{0, kSync, offer(0, {1}), old.epoch()});
  EXPECT_EQ(old.hear_a<protocol::Answer>()->code, Code::kSharedState) << "it has revision 1";
}

TEST(Runs, MetricsAreOfAllLivingRuns) {
  net::Loop loop("runs");
  auto runs =
      std::make_unique<Runs>(loop, true, false, kKeepDaysDefault, protocol::kSpoken,
                             Runs::Callbacks{.send = [](ConnectionId, const protocol::Message&) {},
                                             .close = [](ConnectionId) {},
                                             .on_stepped = [] {}});
  ASSERT_TRUE(runs->open({}).ok());
  std::promise<std::string> before, after;
  loop.post([&] {
    before.set_value(runs->metrics());
    for (uint64_t i = 1; i <= 2; ++i) {
      protocol::Hello hello = Harness::hello(1);
      hello.run = "run " + std::to_string(i);
      const Runs::Found found = runs->admit(hello, "127.0.0.1");
      runs->attach(*found.run, Accepted{{i}, "127.0.0.1", true}, hello);
    }
    after.set_value(runs->metrics());
    runs.reset();
  });
  EXPECT_TRUE(contains(before.get_future().get(), "\npccl_build_info{"));
  const std::string text = after.get_future().get();
  for (const char* run : {"run 1", "run 2"})
    EXPECT_TRUE(contains(text, std::string("\npccl_finding{run=\"") + run)) << text;
  EXPECT_FALSE(contains(text, "pccl_journal")) << "this master has none";
  loop.stop();
}

}  // namespace
}  // namespace pccl::master
