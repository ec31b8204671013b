#include "csrc/probe/client_core.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/base/transitions.h"
#include "csrc/net/framing.h"
#include "csrc/protocol/limits.h"

namespace pccl::probe {
namespace {

using protocol::FrameHeader;
using protocol::FrameType;
using ClientState = ClientCore::State;

const char* name_of(ClientState state) {
  switch (state) {
    case ClientState::kConnecting: return "connecting";
    case ClientState::kIntroducing: return "introducing";
    case ClientState::kPinging: return "pinging";
    case ClientState::kAsking: return "asking";
    case ClientState::kOpening: return "opening";
    case ClientState::kMeasuring: return "measuring";
    case ClientState::kOver: return "over";
  }
  return "unknown";
}

const Transitions<ClientState, 12> kClientTransitions(
    "a probe client", name_of,
    {{ClientState::kConnecting, ClientState::kIntroducing, "Opened", "kHello"},
     {ClientState::kIntroducing, ClientState::kPinging, "kHelloOk, AboutReceived", "kPing"},
     {ClientState::kPinging, ClientState::kAsking, "the last kPong", "Ready; kTrial"},
     {ClientState::kAsking, ClientState::kOpening, "kTrial", "Dial, for each connection"},
     {ClientState::kOpening, ClientState::kMeasuring, "the last kHelloOk of a further connection",
      "BeginCount"},
     {ClientState::kMeasuring, ClientState::kAsking, "kTrialResult; a trial is left",
      "Measured; Close of the connections; kTrial"},
     {ClientState::kMeasuring, ClientState::kOver, "kTrialResult; no trial is left; a failure",
      "Measured if it was none; Over"},
     {ClientState::kConnecting, ClientState::kOver, "Failed", "Over"},
     {ClientState::kIntroducing, ClientState::kOver, "a failure, or a refusal", "Over"},
     {ClientState::kPinging, ClientState::kOver, "a failure, or a refusal", "Over"},
     {ClientState::kAsking, ClientState::kOver, "a failure, or a refusal", "Over"},
     {ClientState::kOpening, ClientState::kOver, "a failure, or a refusal", "Over"}});

Ending ending_of(const Failed& event) {
  if (event.why.code == Code::kAuthentication) return Ending::kToken;
  if (event.reached) return Ending::kNoProbe;
  if (event.fault == LinkFault::kRefused) return Ending::kRefused;
  return event.fault == LinkFault::kNoAnswer ? Ending::kNoAnswer : Ending::kNoConnect;
}

}  // namespace

void ClientCore::step(const Event& event, Instant now, Effects& effects) {
  if (state_ == State::kOver) return;
  effects_ = &effects;
  now_ = now;
  std::visit([this](const auto& one) { on(one); }, event);
}

std::optional<Instant> ClientCore::deadline() const {
  return state_ == State::kOver ? std::nullopt : due_;
}

void ClientCore::enter(State next) {
  state_ = kClientTransitions.step(state_, next);
  due_ = now_ + kAnswerTimeout;
}

Trial ClientCore::trial() const {
  const size_t directions = plan_.directions.size();
  return {.streams = plan_.streams.at(trials_ / directions),
          .milliseconds = plan_.milliseconds,
          .direction = plan_.directions.at(trials_ % directions),
          .wan = rtt_ >= protocol::kWanRttMin,
          .congestion = plan_.congestion};
}

// ---- Events ----

void ClientCore::on(const Opened& event) {
  protocol::LaneHello hello{.run_id = session_, .machine = machine_};
  if (event.id == kControl) {
    enter(State::kIntroducing);
    due_ = now_ + protocol::kHelloTimeout;
  } else {
    hello.further = true;
  }
  emit(Send{event.id, net::hello_frame(FrameType::kHello, hello)});
}

void ClientCore::on(const FrameReceived& event) {
  const FrameHeader& header = event.header;
  if (event.id != kControl) return on_lane(event.id, header);
  if (header.type == FrameType::kTrialResult) return on_result(header);
  if (state_ == State::kIntroducing) {
    answered_ = !answered_ && is_answer(header, false);
    if (!answered_) end(Ending::kNoProbe, "answered with another frame than a hello");
    return;
  }
  if (state_ == State::kPinging && header.type == FrameType::kPong) return on_pong();
  const bool ready = state_ == State::kAsking && trial_in(header) == trial();
  ready ? open() : lost("spoke out of turn");
}

bool ClientCore::is_answer(const FrameHeader& header, bool further) {
  const auto hello = net::hello_in(FrameType::kHelloOk, header);
  return hello && hello->run_id == session_ && hello->further == further;
}

void ClientCore::on(const AboutReceived& event) {
  if (event.id != kControl || state_ != State::kIntroducing || !answered_)
    return end(Ending::kNoProbe, "sent data before a hello");
  about_ = event.text;
  enter(State::kPinging);
  ping();
}

void ClientCore::on_lane(Id id, const FrameHeader& header) {
  const bool known = std::find(lanes_.begin(), lanes_.end(), id) != lanes_.end();
  if (!known) return;  // of an earlier trial
  if (state_ != State::kOpening || !is_answer(header, true)) return lost("spoke out of turn");
  const uint64_t machine = net::hello_in(FrameType::kHelloOk, header)->machine;
  const Trial asked = trial();
  emit(Carry{id, asked.wan, asked.congestion, machine != 0 && machine == machine_});
  carrying_.push_back(id);
  if (carrying_.size() < asked.streams) return;
  enter(State::kMeasuring);
  due_ = now_ + asked.length() + kAnswerTimeout;
  const bool sends = asked.direction != Direction::kBack;
  emit(BeginCount{sends ? carrying_ : std::vector<Id>(), asked.wan, now_ + asked.warm_up(),
                  now_ + asked.length()});
}

void ClientCore::on(const Failed& event) {
  if (event.id == kControl) {
    const bool early = state_ == State::kConnecting || state_ == State::kIntroducing;
    return end(early ? ending_of(event) : Ending::kLost, event.why.message);
  }
  if (std::erase(lanes_, event.id) == 0) return;
  if (state_ == State::kOpening) return lost("takes no further connection: " + event.why.message);
  ++lost_;
}

void ClientCore::on(const TuneRefused&) {
  lost("cannot be measured, since this system refuses the congestion control " + plan_.congestion);
}

void ClientCore::on(const TimePassed&) {
  if (!due_ || *due_ > now_) return;
  if (state_ == State::kIntroducing)
    return end(Ending::kNoProbe, "said nothing for " + pccl::text(protocol::kHelloTimeout));
  lost("said nothing for " + pccl::text(kAnswerTimeout));
}

// ---- The course ----

void ClientCore::ping() {
  FrameHeader header;
  header.type = FrameType::kPing;
  header.value = pings_.size();
  pinged_at_ = now_;
  emit(Send{kControl, header});
}

void ClientCore::on_pong() {
  pings_.push_back(now_ - pinged_at_);
  if (pings_.size() < kPings) return ping();
  const auto median = pings_.begin() + kPings / 2;
  std::nth_element(pings_.begin(), median, pings_.end());
  rtt_ = *median;
  emit(Ready{rtt_, about_});
  ask();
}

void ClientCore::ask() {
  enter(State::kAsking);
  emit(Send{kControl, frame_of(trial())});
}

// Opens all connections at once. One after another, each would take a round trip.
void ClientCore::open() {
  enter(State::kOpening);
  for (uint32_t i = 0; i < trial().streams; ++i) {
    lanes_.push_back(++last_);
    emit(Dial{last_});
  }
}

void ClientCore::on_result(const FrameHeader& header) {
  const Refusal refusal = refusal_in(header);
  if (refusal == Refusal::kBusy) return end(Ending::kBusy, "");
  if (refusal == Refusal::kToken) return end(Ending::kToken, "admits only clients with a token");
  if (refusal != Refusal::kNone) return lost(std::string("says that this client ") + text(refusal));
  if (state_ != State::kMeasuring) return lost("spoke out of turn");
  const TrialResult theirs = result_in(header);
  const uint32_t lost_lanes = std::max(lost_, theirs.lost);
  if (lost_lanes > 0) {
    return lost("lost " + std::to_string(lost_lanes) + " of " + std::to_string(trial().streams) +
                " connections in a measurement");
  }
  emit(Measured{trial(), theirs});
  for (const Id id : lanes_) emit(Close{id});
  lanes_.clear();
  carrying_.clear();
  if (++trials_ == plan_.streams.size() * plan_.directions.size()) return end(Ending::kDone, "");
  ask();
}

void ClientCore::end(Ending ending, std::string why) {
  enter(State::kOver);
  emit(Over{ending, std::move(why)});
}

}  // namespace pccl::probe
