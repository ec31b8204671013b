#include "csrc/watch/watch_core.h"

#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/protocol/codec.h"
#include "csrc/protocol/limits.h"

namespace pccl::watch {

void WatchCore::step(const Event& event, Instant now, Effects& effects) {
  if (state_ == State::kOver) return;
  now_ = now;
  effects_ = &effects;
  std::visit([this](const auto& what) { on(what); }, event);
  effects_ = nullptr;
}

std::optional<Instant> WatchCore::deadline() const {
  return state_ == State::kOver ? std::nullopt : std::optional(due_);
}

void WatchCore::on(const Connected&) {
  PCCL_ASSERT(state_ == State::kConnecting);
  ask();
}

void WatchCore::ask() {
  state_ = State::kAsking;
  due_ = now_ + kAnswerTimeout;
  answer_.clear();
  effects_->emplace_back(Send{protocol::Watch{.run = plan_.run}});
}

void WatchCore::on(const Received& event) {
  if (const auto* reject = std::get_if<protocol::Reject>(&event.message))
    return end(reject->code == Code::kAuthentication ? Ending::kToken : Ending::kRefused,
               reject->text);
  const auto* part = std::get_if<protocol::Snapshot>(&event.message);
  if (part != nullptr && state_ == State::kAsking) return on_part(*part);
  end(Ending::kLost, std::string("it sends an unexpected ") + protocol::name(event.message));
}

void WatchCore::on_part(const protocol::Snapshot& part) {
  if (answer_.size() + part.part.size() > protocol::kSnapshotBytesMax) {
    return end(Ending::kLost,
               "its answer takes more than " + count_text(protocol::kSnapshotBytesMax, "byte"));
  }
  answer_ += part.part;
  if (!part.last) return;
  effects_->emplace_back(Show{std::exchange(answer_, {})});
  if (!plan_.interval) return end(Ending::kDone, "");
  state_ = State::kPausing;
  due_ = now_ + *plan_.interval;
}

void WatchCore::on(const Failed& event) {
  const Ending ending = event.why.code == Code::kAuthentication ? Ending::kToken
                        : state_ == State::kConnecting          ? Ending::kNoMaster
                                                                : Ending::kLost;
  end(ending, event.why.message);
}

void WatchCore::on(const TimePassed&) {
  if (now_ < due_) return;
  if (state_ == State::kPausing) return ask();
  const std::string limit = " within " + text(kAnswerTimeout);
  if (state_ == State::kConnecting) return end(Ending::kNoMaster, "no connection" + limit);
  end(Ending::kLost, "it does not answer" + limit);
}

void WatchCore::end(Ending ending, std::string why) {
  state_ = State::kOver;
  effects_->emplace_back(Over{ending, std::move(why)});
}

}  // namespace pccl::watch
