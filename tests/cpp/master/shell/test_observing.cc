#include "master/shell/observing.h"

#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>

namespace pccl::master {
namespace {

using protocol::Reject;
using protocol::Snapshot;

// Connections that only count.
class ObservingTest : public testing::Test {
 protected:
  ObservingTest() {
    on_loop([this] {
      observing = std::make_unique<Observing>(
          loop,
          Observing::Callbacks{
              .snapshot_of = [this](const std::string&) { return next; },
              .send = [this](ConnectionId id,
                             const protocol::Message& message) { sent(id, message); },
              .refuse = [this](ConnectionId id, const std::string& run,
                               const Reject& reject) { end(id, run + ": " + reject.text); },
              .unsent = [this](ConnectionId) { return unsent; },
              .close = [this](ConnectionId id, const std::string& why) { end(id, why); },
          },
          protocol::kObserversMax);
    });
  }
  ~ObservingTest() override {
    on_loop([this] { observing.reset(); });
  }
  void on_loop(const std::function<void()>& task) {
    std::promise<void> done;
    loop.post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  // Lets an observer ask, and waits for its answer or its end.
  std::string ask(uint64_t id) {
    std::future<std::string> answer;
    on_loop([&] {
      answers[id] = {};
      answer = answers[id].get_future();
      if (observing->contains({id})) {
        observing->receive({id}, protocol::Watch{.run = "night"});
      } else {
        EXPECT_FALSE(observing->add({id}, "night").has_value());
      }
    });
    if (answer.wait_for(std::chrono::seconds(30)) != std::future_status::ready) return "(nothing)";
    return answer.get();
  }
  void sent(ConnectionId id, const protocol::Message& message) {
    const auto& part = std::get<Snapshot>(message);
    EXPECT_LE(part.part.size(), protocol::kSnapshotPartBytesMax);
    parts += 1;
    text[id.value] += part.part;
    if (part.last) answers.at(id.value).set_value(std::exchange(text[id.value], {}));
  }
  void end(ConnectionId id, const std::string& why) {
    observing->forget(id);
    answers.at(id.value).set_value("ended: " + why);
  }

  std::variant<nlohmann::json, Reject> next = nlohmann::json{{"schema", 1}};
  size_t unsent = 0, parts = 0;
  std::map<uint64_t, std::promise<std::string>> answers;
  std::map<uint64_t, std::string> text;
  net::Loop loop{"observing"};
  std::unique_ptr<Observing> observing;
};

TEST_F(ObservingTest, AnObserverGetsASnapshotForEachQuestion) {
  EXPECT_EQ(ask(1), "{\"schema\":1}\n");
  next = nlohmann::json{{"schema", 2}};
  EXPECT_EQ(ask(1), "{\"schema\":2}\n");
  EXPECT_EQ(parts, 2u);
}

TEST_F(ObservingTest, ALargeSnapshotIsSentInParts) {
  const std::string large(protocol::kSnapshotPartBytesMax * 2, 'x');
  next = nlohmann::json{{"run", large}};
  EXPECT_EQ(ask(1), "{\"run\":\"" + large + "\"}\n");
  EXPECT_EQ(parts, 3u);
}

TEST_F(ObservingTest, ASnapshotThatIsTooLargeIsRefused) {
  next = nlohmann::json{{"run", std::string(protocol::kSnapshotBytesMax, 'x')}};
  EXPECT_EQ(ask(1),
            "ended: night: the snapshot takes 4194315 bytes, and a master sends at most 4194304: "
            "ask on its machine (`pccl status`)");
  EXPECT_EQ(parts, 0u);
}

TEST_F(ObservingTest, ARunThatIsOverRefusesItsObservers) {
  EXPECT_EQ(ask(1), "{\"schema\":1}\n");
  next = Reject{Code::kInvalidState, "it is over"};
  EXPECT_EQ(ask(1), "ended: night: it is over");
}

TEST_F(ObservingTest, AnObserverThatBreaksARuleLosesItsConnection) {
  EXPECT_EQ(ask(1), "{\"schema\":1}\n");
  unsent = 1;
  EXPECT_EQ(ask(1), "ended: an observer asks before it has read its answer");
}

}  // namespace
}  // namespace pccl::master
