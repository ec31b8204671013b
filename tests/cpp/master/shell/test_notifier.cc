#include "master/shell/notifier.h"

#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "csrc/base/log.h"
#include "csrc/base/log_queue.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

using std::chrono::milliseconds;

// Findings that a test changes while the notifier looks at them.
class NotifierTest : public testing::Test {
 protected:
  ~NotifierTest() override { stop(); }

  void start(const std::string& command, Duration limit = std::chrono::seconds(60)) {
    on_loop([&] {
      notifier = std::make_unique<Notifier>(
          loop, Notifier::Options{command, Duration(0), milliseconds(5), limit},
          [this] { return findings; });
    });
  }
  void stop() {
    on_loop([this] { notifier.reset(); });
  }
  void on_loop(const std::function<void()>& what) {
    std::promise<void> done;
    loop.post([&] { what(), done.set_value(); });
    done.get_future().wait();
  }
  void find(const std::vector<FindingCode>& codes) {
    on_loop([&] {
      findings.clear();
      for (const FindingCode code : codes)
        findings["night"].push_back({code, Severity::kError, {"b"}, "it is silent", "look"});
    });
  }
  // The objects that the command has got, once there are `count`.
  std::vector<nlohmann::json> sent(size_t count) {
    const Instant end = monotonic_now() + std::chrono::seconds(30);
    std::vector<nlohmann::json> all;
    while (all.size() < count && monotonic_now() < end) {
      std::this_thread::sleep_for(milliseconds(2));
      all.clear();
      std::ifstream file(path);
      for (std::string line; std::getline(file, line) && !file.eof();)
        all.push_back(nlohmann::json::parse(line));
    }
    return all;
  }
  // The log, once it has `text`.
  std::string log_with(const std::string& text) {
    const Instant end = monotonic_now() + std::chrono::seconds(30);
    std::string log;
    while (log.find(text) == std::string::npos && monotonic_now() < end) {
      std::this_thread::sleep_for(milliseconds(2));
      for (const LogRecord& record : log_queue().take(Duration(0))) log += message(record) + "\n";
    }
    return log;
  }

  const TempFolder folder;
  const std::string path = folder.path() + "/sent";
  net::Loop loop{"test"};
  FindingsByRun findings;
  std::unique_ptr<Notifier> notifier;
};

TEST_F(NotifierTest, TheCommandGetsTheFindings) {
  start("cat >> '" + path + "'");
  find({FindingCode::kPeerSilent});
  find({FindingCode::kPeerSilent, FindingCode::kLinkDown});
  const auto all = sent(2);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].at("code"), "peer_silent");
  EXPECT_EQ(all[1].at("code"), "link_down");
  EXPECT_EQ(all[1].at("run"), "night");
  EXPECT_EQ(all[1].at("event"), "finding_begins");
}

TEST_F(NotifierTest, TheLogHasTheFindings) {
  log_queue().open();
  set_log_level("info");
  start("");
  find({FindingCode::kPeerSilent});
  EXPECT_EQ(log_with("finding"), "run \"night\": finding peer_silent: it is silent\n");
  find({});
  EXPECT_EQ(log_with("finding"), "run \"night\": finding peer_silent is over: it is silent\n");
  log_queue().close();
  set_log_level("warning");
}

TEST_F(NotifierTest, AFailureIsLogged) {
  log_queue().open();
  start("exit 3");
  find({FindingCode::kPeerSilent});
  EXPECT_NE(log_with("--notify").find("the command of --notify has ended with status 3\n"),
            std::string::npos);
  log_queue().close();
}

TEST_F(NotifierTest, ALongCommandIsKilledAndTheNextOneRuns) {
  log_queue().open();
  start("cat >> '" + path + "'; sleep 1000", milliseconds(50));
  find({FindingCode::kPeerSilent, FindingCode::kLinkDown});
  EXPECT_EQ(sent(2).size(), 2u);
  EXPECT_NE(log_with("took longer").find("took longer than 50 ms, and was killed\n"),
            std::string::npos);
  log_queue().close();
}

TEST_F(NotifierTest, TheLoopDoesNotWaitForACommand) {
  start("sleep 1000");
  find({FindingCode::kPeerSilent});
  std::this_thread::sleep_for(milliseconds(20));
  const Instant begin = monotonic_now();
  on_loop([] {});
  stop();  // kills it
  EXPECT_LT(monotonic_now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace pccl::master
