#include "csrc/probe/server_core.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/base/transitions.h"
#include "csrc/net/framing.h"

namespace pccl::probe {
namespace {

using protocol::FrameHeader;
using protocol::FrameType;
using ServerState = ServerCore::State;

const char* name_of(ServerState state) {
  switch (state) {
    case ServerState::kFree: return "free";
    case ServerState::kIdle: return "idle";
    case ServerState::kOpening: return "opening";
    case ServerState::kMeasuring: return "measuring";
    case ServerState::kDone: return "done";
  }
  return "unknown";
}

const Transitions<ServerState, 9> kServerTransitions(
    "a probe server", name_of,
    {{ServerState::kFree, ServerState::kIdle, "kHello of a client", "kHelloOk, SendAbout"},
     {ServerState::kIdle, ServerState::kOpening, "kTrial", "kTrial"},
     {ServerState::kOpening, ServerState::kMeasuring, "the last kHello of a further connection",
      "kHelloOk, BeginCount"},
     {ServerState::kMeasuring, ServerState::kDone, "its time has passed", "EndCount: kTrialResult"},
     {ServerState::kDone, ServerState::kOpening, "kTrial", "Close of the old connections; kTrial"},
     {ServerState::kIdle, ServerState::kFree, "the client is gone, silent or breaks a rule",
      "kTrialResult"},
     {ServerState::kOpening, ServerState::kFree,
      "the client is gone or breaks a rule; connections are missing; the system refuses the "
      "congestion control",
      "kTrialResult"},
     {ServerState::kMeasuring, ServerState::kFree, "the client is gone or breaks a rule",
      "EndCount, kTrialResult"},
     {ServerState::kDone, ServerState::kFree, "the client is gone, silent or breaks a rule",
      "kTrialResult"}});

}  // namespace

void ServerCore::step(const Event& event, Instant now, Effects& effects) {
  effects_ = &effects;
  now_ = now;
  std::visit([this](const auto& one) { on(one); }, event);
  check();
}

std::optional<Instant> ServerCore::deadline() const {
  std::optional<Instant> first;
  if (state_ != State::kFree) first = std::min(due_, over_);
  for (const auto& [id, at] : leaving_) first = std::min(first.value_or(at), at);
  return first;
}

void ServerCore::enter(State next) { state_ = kServerTransitions.step(state_, next); }

void ServerCore::on(const FrameReceived& event) {
  if (leaving_.contains(event.id)) return;
  if (state_ != State::kFree && event.id == control_) return on_control(event.header);
  if (!remove_lane(event.id)) return on_first(event.id, event.header);
  emit(Close{event.id});  // data connections carry data alone
}

void ServerCore::on_first(Id id, const FrameHeader& header) {
  const auto hello = net::hello_in(FrameType::kHello, header);
  if (!hello) return emit(Close{id});
  if (!protocol::common(hello->versions, protocol::kSpoken)) return refuse(id, Refusal::kVersion);
  // The hello of a peer of a run has its own id and the id of the other end; a probe client has
  // neither.
  if (hello->self || hello->other || hello->run_id == 0) return emit(Close{id});
  if (!hello->further) {
    if (state_ != State::kFree) return refuse(id, Refusal::kBusy);
    session_ = hello->run_id;
    return admit(id);
  }
  const bool wanted = state_ == State::kOpening && hello->run_id == session_;
  wanted ? join(id, hello->machine) : emit(Close{id});
}

FrameHeader ServerCore::answer() const {
  return net::hello_frame(FrameType::kHelloOk, {.run_id = session_, .machine = machine_});
}

void ServerCore::admit(Id id) {
  enter(State::kIdle);
  control_ = id;
  trials_ = 0;
  due_ = now_ + kAnswerTimeout;
  over_ = now_ + kSessionMax;
  emit(Send{id, answer()});
  emit(SendAbout{id});
  emit(Note{id, "measures"});
}

void ServerCore::join(Id id, uint64_t machine) {
  const bool local = machine != 0 && machine == machine_;
  lanes_.push_back(id);
  emit(Carry{id, trial_.wan, trial_.congestion, local});
  FrameHeader header = answer();
  header.round = 1;
  emit(Send{id, header});
  if (lanes_.size() < trial_.streams) return;
  enter(State::kMeasuring);
  due_ = now_ + trial_.length();
  const bool sends = trial_.direction != Direction::kThere;
  emit(BeginCount{sends ? lanes_ : std::vector<Id>(), trial_.wan, now_ + trial_.warm_up(), due_});
}

void ServerCore::on_control(const FrameHeader& header) {
  const bool may_ask = state_ == State::kIdle || state_ == State::kDone;
  if (may_ask && header.type == FrameType::kPing) {
    due_ = now_ + kAnswerTimeout;
    FrameHeader pong;
    pong.type = FrameType::kPong;
    pong.value = header.value;
    return emit(Send{control_, pong});
  }
  if (!may_ask || header.type != FrameType::kTrial) return end(Refusal::kOutOfPlace);
  const auto trial = trial_in(header);
  trial ? open(*trial) : end(Refusal::kTrial);
}

void ServerCore::open(const Trial& trial) {
  close_lanes();
  enter(State::kOpening);
  trial_ = trial;
  lost_ = 0;
  due_ = now_ + kAnswerTimeout;
  emit(Send{control_, frame_of(trial)});
}

void ServerCore::on(const Failed& event) {
  leaving_.erase(event.id);
  if (state_ == State::kFree || event.id != control_)
    return static_cast<void>(remove_lane(event.id));
  const bool may_go = state_ == State::kIdle || state_ == State::kDone;
  const bool went = may_go && event.why.code == Code::kSystem;
  end_with(went ? "has ended" : "is gone: " + event.why.message, Refusal::kNone);
}

// False: this is no data connection of the trial.
bool ServerCore::remove_lane(Id id) {
  if (std::erase(lanes_, id) == 0) return false;
  if (state_ == State::kMeasuring) ++lost_;
  return true;
}

void ServerCore::on(const TuneRefused& event) {
  const bool ours = std::find(lanes_.begin(), lanes_.end(), event.id) != lanes_.end();
  if (ours) end(Refusal::kCongestion);
}

void ServerCore::on(const TimePassed&) {
  std::vector<Id> gone;
  for (const auto& [id, at] : leaving_) {
    if (at <= now_) gone.push_back(id);
  }
  for (const Id id : gone) {
    leaving_.erase(id);
    emit(Close{id});
  }
  if (state_ == State::kFree) return;
  if (over_ <= now_) return end(Refusal::kTooLong);
  if (due_ > now_) return;
  if (state_ == State::kMeasuring) return finish();
  end(state_ == State::kOpening ? Refusal::kStreams : Refusal::kSilence);
}

// The client may still send until it has the result. So the connections of the trial stay open
// until the next trial.
void ServerCore::finish() {
  enter(State::kDone);
  ++trials_;
  due_ = now_ + kAnswerTimeout;
  emit(EndCount{control_, lost_});
}

void ServerCore::close_lanes() {
  for (const Id id : lanes_) emit(Close{id});
  lanes_.clear();
}

void ServerCore::refuse(Id id, Refusal why) {
  emit(Send{id, frame_of(why)});
  leaving_[id] = now_ + kLeaving;
  if (leaving_.size() <= kLeavingMax) return;
  emit(Close{leaving_.begin()->first});
  leaving_.erase(leaving_.begin());
}

void ServerCore::end_with(const std::string& why, Refusal told) {
  if (state_ == State::kMeasuring) emit(EndCount{});
  close_lanes();
  enter(State::kFree);
  emit(Note{control_, why + ", after " + count_text(trials_, "measurement")});
  if (told != Refusal::kNone) refuse(control_, told);
  control_ = 0;
  session_ = 0;
}

void ServerCore::check() const {
  const bool free = state_ == State::kFree;
  PCCL_ASSERT((control_ == 0) == free && (session_ == 0) == free);
  PCCL_ASSERT(lanes_.empty() || (!free && state_ != State::kIdle));
  PCCL_ASSERT(lanes_.size() <= trial_.streams);
  PCCL_ASSERT(leaving_.size() <= kLeavingMax && !leaving_.contains(control_));
}

}  // namespace pccl::probe
