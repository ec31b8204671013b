#include "master/history.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/protocol/limits.h"

namespace pccl::master {
namespace {

std::string bounded(const std::string& text) {
  return std::string(cut(text, protocol::kTextBytesMax));
}

}  // namespace

void History::note(Instant at, LogLevel level, const std::string& text) {
  Event event{at, level, bounded(text)};
  std::erase_if(events_, [&event](const Event& other) { return other.text == event.text; });
  events_.push_back(std::move(event));
  if (events_.size() > kEventsMax) events_.pop_front();
}

void History::refused(Refusal refusal) {
  PCCL_ASSERT(!refusal.text.empty());
  refusal.text = bounded(refusal.text);
  refusal.whom = bounded(refusal.whom);
  std::erase_if(refusals_, [&refusal](const Refusal& other) {
    return other.cause == refusal.cause && other.text == refusal.text;
  });
  refusals_.push_back(std::move(refusal));
  if (refusals_.size() > kRefusalsMax) refusals_.pop_front();
}

void History::agreed(GroupId group) {
  std::erase_if(refusals_, [group](const Refusal& one) {
    return one.cause == Cause::kState && one.group == group;
  });
}

void History::check() const {
  PCCL_ASSERT(events_.size() <= kEventsMax && refusals_.size() <= kRefusalsMax);
  for (size_t i = 0; i < events_.size(); ++i) {
    PCCL_ASSERT(events_[i].text.size() <= protocol::kTextBytesMax);
    PCCL_ASSERT(i == 0 || events_[i - 1].at <= events_[i].at);
    for (size_t j = 0; j < i; ++j) PCCL_ASSERT(events_[i].text != events_[j].text);
  }
  for (size_t i = 0; i < refusals_.size(); ++i) {
    PCCL_ASSERT(!refusals_[i].text.empty() && refusals_[i].text.size() <= protocol::kTextBytesMax);
    PCCL_ASSERT(i == 0 || refusals_[i - 1].at <= refusals_[i].at);
  }
}

const char* level_text(LogLevel level) { return pccl::text(level); }

}  // namespace pccl::master
