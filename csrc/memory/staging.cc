#include "csrc/memory/staging.h"

#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/transitions.h"

namespace pccl::memory {
namespace {

using State = Staging::State;

const char* name_of(State state) {
  switch (state) {
    case State::kCopyingOut: return "copying out";
    case State::kStaged: return "staged";
    case State::kCopyingIn: return "copying in";
    case State::kAbandoned: return "abandoned";
    case State::kOver: return "over";
  }
  return "unknown";
}

const Transitions<State, 6> kTransitions(
    "the staging of an operation on device tensors", name_of,
    {{State::kCopyingOut, State::kStaged,
      "the copies out are done, or have failed; there is nothing to copy out", "OpStaged"},
     {State::kCopyingOut, State::kAbandoned, "the operation has failed"},
     {State::kStaged, State::kCopyingIn, "the operation has committed", "the copies in begin"},
     {State::kStaged, State::kOver,
      "the operation has failed; it has committed, and there is nothing to copy in, or the copies "
      "in cannot begin",
      "the Work ends, if it has committed"},
     {State::kCopyingIn, State::kOver, "the copies in are done, or have failed", "the Work ends"},
     {State::kAbandoned, State::kOver, "the copies out are done, or have failed"}});

}  // namespace

Staging::~Staging() { PCCL_ASSERT(!begun_ || over()); }

void Staging::enter(State next) { state_ = kTransitions.step(state_, next); }

Result<std::span<std::byte>> Staging::pin(size_t bytes) {
  if (bytes == 0) return std::span<std::byte>{};
  Result<std::unique_ptr<PinnedMemory>> memory = device_.pinned(bytes);
  if (!memory.ok()) return memory.status();
  pinned_.push_back(std::move(memory.value()));
  return pinned_.back()->bytes();
}

Status Staging::begin() {
  PCCL_ASSERT(!begun_);
  Result<DeviceEventPtr> mark = device_.mark();
  if (!mark.ok()) return mark.status();
  mark_ = std::move(mark.value());
  if (!out_.empty()) {
    Result<DeviceEventPtr> event = device_.copy_out(mark_, out_);
    if (!event.ok()) return event.status();
    event_ = std::move(event.value());
  } else {
    enter(State::kStaged);
  }
  begun_ = true;
  return {};
}

void Staging::end(bool committed) {
  PCCL_ASSERT(begun_ && !verdict_);
  verdict_ = committed;
}

Staging::News Staging::poll() {
  PCCL_ASSERT(begun_);
  News news;
  if (state_ == State::kCopyingOut && verdict_ == false) enter(State::kAbandoned);
  if (state_ == State::kStaged && verdict_) act_on_verdict(news);
  if (event_ == nullptr) return news;
  Result<bool> reached = event_->reached();
  if (reached.ok() && !reached.value()) return news;
  event_.reset();
  const Status status = reached.ok() ? Status{} : reached.status();
  if (state_ == State::kCopyingOut) {
    copies_out_done(status, news);
  } else if (state_ == State::kAbandoned) {
    enter(State::kOver);
  } else {
    PCCL_ASSERT(state_ == State::kCopyingIn);
    enter(State::kOver);
    news.finished = status;
  }
  return news;
}

// The verdict "committed" may come before the copies out are done, if no member needs the data. The
// copies in then follow at once.
void Staging::copies_out_done(const Status& status, News& news) {
  enter(State::kStaged);
  failure_ = status;
  if (verdict_) {
    act_on_verdict(news);
  } else {
    news.staged = status;
  }
}

void Staging::act_on_verdict(News& news) {
  const bool committed = *verdict_;
  Status status = failure_;
  if (committed && status.ok() && !in_.empty()) {
    Result<DeviceEventPtr> event = device_.copy_in(mark_, in_);
    if (event.ok()) {
      event_ = std::move(event.value());
      return enter(State::kCopyingIn);
    }
    status = event.status();
  }
  enter(State::kOver);
  if (committed) news.finished = status;
}

}  // namespace pccl::memory
