#include "csrc/peer/token_choice.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::peer {

void TokenChoice::read(uint32_t number) {
  PCCL_ASSERT(context_.options.secured && number > newest_);
  newest_ = number;
  refused_ = false;
  pause_ = kPauseMin;
  retry_at_ = context_.now;
}

uint32_t TokenChoice::choose() {
  const bool waits = refused_ && context_.now < retry_at_;
  return shown_ = waits && proven_ != 0 ? proven_ : newest_;
}

void TokenChoice::proven() {
  const bool was_refused = shown_ == newest_ && std::exchange(refused_, false);
  if (std::exchange(proven_, shown_) == shown_ || shown_ == 1) return;
  context_.note(was_refused ? LogLevel::kWarning : LogLevel::kInfo, LogEvent::kTokenChanged,
                "the " + context_.master() + " has taken the new token of this peer");
  context_.emit(ForgetTokens{shown_});
}

bool TokenChoice::refused(const std::string& why) {
  // The master no longer accepts an older token, so only the newest token can help.
  if (shown_ != newest_) {
    retry_at_ = context_.now;
    return true;
  }
  if (proven_ == 0 || proven_ == newest_) return false;
  retry_at_ = context_.now + pause_;
  pause_ = std::min(pause_ * 2, kPauseMax);
  if (std::exchange(refused_, true)) return true;
  context_.note(LogLevel::kWarning, LogEvent::kTokenChanged,
                "the " + context_.master() + " refuses the new token of this peer (" + why +
                    "): it goes on with the token before, and tries the new "
                    "one again from time to time");
  return true;
}

bool TokenChoice::due() const { return shown_ != newest_ && context_.now >= retry_at_; }

std::optional<Instant> TokenChoice::deadline() const {
  if (shown_ == newest_) return std::nullopt;
  return retry_at_;
}

void TokenChoice::check() const {
  PCCL_ASSERT(proven_ <= newest_ && shown_ <= newest_);
  PCCL_ASSERT(pause_ >= kPauseMin && pause_ <= kPauseMax);
  PCCL_ASSERT(retry_at_ <= context_.now + kPauseMax);
}

}  // namespace pccl::peer
