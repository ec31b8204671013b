// ServerCore decides for the serving end of `pccl probe`: which clients may connect, which trial
// runs, and when a session ends (PROTOCOL.md, section 9). It is pure: it has no socket, clock or
// thread. The ProbeEnd owns it, and only step() changes it.
//
//   client                                server
//     kHello (session) ----------------->   kHelloOk and a text about its host; or a refusal
//     kPing ----------------------------->  kPong, a few times
//     kTrial ---------------------------->  kTrial: ready
//     kHello (session, further) --------->  kHelloOk, on each connection; then data flows
//                         <-------------    kTrialResult; another trial may follow
//
// Invariants:
//   1. There is one session at most. Other clients get the refusal "busy".
//   2. A connection carries data only if its hello comes while a trial lacks connections, and has
//      the number of the session, which the client has drawn at random.
//   3. Each state but kFree has a time limit, and so has the whole session.
// Failure: a client that breaks a rule, or is silent, gets a refusal and loses its session.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "csrc/probe/events.h"

namespace pccl::probe {

class ServerCore : public Core {
 public:
  static constexpr Duration kSessionMax = std::chrono::hours(1);
  // A refused connection stays open for this time, so that the refusal arrives.
  static constexpr Duration kLeaving = std::chrono::seconds(1);
  static constexpr size_t kLeavingMax = 64;  // beyond it, the oldest is closed

  // `machine`: the result of net::machine_id().
  explicit ServerCore(uint64_t machine) : machine_(machine) {}
  void step(const Event& event, Instant now, Effects& effects) override;
  std::optional<Instant> deadline() const override;

  enum class State : uint8_t { kFree, kIdle, kOpening, kMeasuring, kDone };
  State state() const { return state_; }
  void check() const;  // asserts the invariants; step() calls it

 private:
  void on(const FrameReceived& event);
  void on(const Failed& event);
  void on(const TuneRefused& event);
  void on(const TimePassed&);
  template <typename Other>
  void on(const Other&) {
    PCCL_ASSERT(false);  // an event of a client only
  }
  template <typename E>
  void emit(E effect) {
    effects_->emplace_back(std::move(effect));
  }
  void enter(State next);  // REQUIRES: the table allows it
  void on_first(Id id, const protocol::FrameHeader& header);
  void on_control(const protocol::FrameHeader& header);
  void admit(Id id);
  void join(Id id, uint64_t machine);
  void open(const Trial& trial);
  bool remove_lane(Id id);
  void close_lanes();
  void finish();
  void refuse(Id id, Refusal why);
  void end(Refusal why) { end_with(text(why), why); }
  void end_with(const std::string& why, Refusal told);
  protocol::FrameHeader answer() const;

  const uint64_t machine_;
  Effects* effects_ = nullptr;     // of the current step
  Instant now_;                    // of the current step
  std::map<Id, Instant> leaving_;  // refused connections, and the time when each is closed

  // ---- Of the session ----
  State state_ = State::kFree;
  Id control_ = 0;
  uint64_t session_ = 0;
  Instant due_, over_;  // time limits: of this state, and of the session
  Trial trial_;
  std::vector<Id> lanes_;
  uint32_t lost_ = 0;
  uint32_t trials_ = 0;  // number of trials that were measured
};

}  // namespace pccl::probe
