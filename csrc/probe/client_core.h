// ClientCore decides for the measuring end of `pccl probe`: it introduces itself, measures the RTT,
// then asks for one trial after another (server_core.h shows the messages). It is pure: it has no
// socket, clock or thread. The ProbeEnd owns it, and only step() changes it. Started comes first.
// Both ends count for the same length of time. The server starts at the last hello, and the client
// at the answer to it, half an RTT later. The client sends until the server's result is here.
// Invariant: it ends once, with Over, and emits nothing after that. Each wait has a limit.
// Failure: Over has the reason. `why` is text of this program, or names the reason in words of the
// system.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/probe/events.h"

namespace pccl::probe {

// The measurements to make: each number of connections in each direction.
struct Plan {
  std::vector<uint32_t> streams;
  std::vector<Direction> directions;
  uint32_t milliseconds = 1000;
  std::string congestion;
};

class ClientCore : public Core {
 public:
  static constexpr size_t kPings = 11;

  // `session`: a random number, not 0, that identifies further connections of this client to the
  // server. REQUIRES: the plan has a trial, and each is within the limits.
  ClientCore(Plan plan, uint64_t session, uint64_t machine)
      : plan_(std::move(plan)), session_(session), machine_(machine) {}
  void step(const Event& event, Instant now, Effects& effects) override;
  std::optional<Instant> deadline() const override;

  enum class State : uint8_t {
    kConnecting,
    kIntroducing,
    kPinging,
    kAsking,
    kOpening,
    kMeasuring,
    kOver
  };
  State state() const { return state_; }

 private:
  void on(const Started&) { emit(Dial{kControl}); }
  void on(const Opened& event);
  void on(const FrameReceived& event);
  void on(const AboutReceived& event);
  void on(const Failed& event);
  void on(const TuneRefused&);
  void on(const TimePassed&);
  template <typename E>
  void emit(E effect) {
    effects_->emplace_back(std::move(effect));
  }
  void enter(State next);  // REQUIRES: the table allows it
  bool is_answer(const protocol::FrameHeader& header, bool further);
  void on_lane(Id id, const protocol::FrameHeader& header);
  void on_pong();
  void on_result(const protocol::FrameHeader& header);
  void ping();
  void ask();
  void open();
  void end(Ending ending, std::string why);
  void lost(std::string why) { end(Ending::kLost, std::move(why)); }
  Trial trial() const;

  static constexpr Id kControl = 1;
  const Plan plan_;
  const uint64_t session_, machine_;
  Effects* effects_ = nullptr;  // of the current step
  Instant now_;                 // of the current step

  State state_ = State::kConnecting;
  std::optional<Instant> due_;  // time limit of this state
  bool answered_ = false;       // the server's hello is here
  std::string about_;
  Instant pinged_at_;
  std::vector<Duration> pings_;
  Duration rtt_{0};
  size_t trials_ = 0;  // number of trials that are over
  Id last_ = kControl;
  // `lanes_`: the lanes of the trial. `carrying_`: the lanes that the server has answered.
  std::vector<Id> lanes_, carrying_;
  uint32_t lost_ = 0;  // lanes that failed in the trial
};

}  // namespace pccl::probe
