// WatchCore decides for an observer: it asks a master for snapshots of a run (PROTOCOL.md, section
// 10), and puts the parts of an answer together. It is pure: it has no socket, clock or thread. The
// WatchEnd owns it, and only step() changes it.
// Invariant: it ends once, with Over, and emits nothing after that. Each wait has a limit.
// Failure: Over has the reason. The text of a refusal is that of the master.
#pragma once

#include <optional>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/watch/events.h"

namespace pccl::watch {

struct Plan {
  std::string run;
  // From one answer to the next question; at least protocol::kSnapshotIntervalMin. None: it ends
  // after one answer.
  std::optional<Duration> interval = {};
};

class WatchCore {
 public:
  // Time for the connection, and for each answer. A loaded master serves other observers first.
  static constexpr Duration kAnswerTimeout = std::chrono::seconds(10);

  // It begins to connect at `now`.
  WatchCore(Plan plan, Instant now) : plan_(std::move(plan)), due_(now + kAnswerTimeout) {}
  void step(const Event& event, Instant now, Effects& effects);
  std::optional<Instant> deadline() const;

 private:
  enum class State : uint8_t { kConnecting, kAsking, kPausing, kOver };
  void on(const Connected&);
  void on(const Received& event);
  void on(const Failed& event);
  void on(const TimePassed&);
  void on_part(const protocol::Snapshot& part);
  void ask();
  void end(Ending ending, std::string why);

  Plan plan_;
  State state_ = State::kConnecting;
  Instant due_;  // the limit of this state, or the end of the pause
  std::string answer_;
  Instant now_;  // of the current step
  Effects* effects_ = nullptr;
};

}  // namespace pccl::watch
