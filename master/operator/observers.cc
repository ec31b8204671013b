#include "master/operator/observers.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/protocol/codec.h"
#include "master/text_format.h"

namespace pccl::master {

using protocol::kObserverIdleMax;
using protocol::kObserverReadTimeout;
using protocol::kObserversMax;
using protocol::kSnapshotIntervalMin;
using protocol::Reject;
using protocol::Watch;

Observers::Observers(size_t most) : most_(std::min(most, kObserversMax)) {}

std::optional<Reject> Observers::add(ConnectionId id, const std::string& run) {
  PCCL_ASSERT(!all_.contains(id));
  if (all_.size() >= most_) {
    return Reject{Code::kInvalidState,
                  "this master has " + count_text(all_.size(), "observer") +
                      ", the most that it serves at the same time: ask again later"};
  }
  all_[id] = {.run = run, .question = ++questions_};
  return std::nullopt;
}

Status Observers::receive(ConnectionId id, const protocol::Message& message, size_t unsent) {
  Observer& observer = all_.at(id);
  const auto* watch = std::get_if<Watch>(&message);
  if (watch == nullptr) return violation(std::string(protocol::name(message)) + " of an observer");
  if (watch->run != observer.run) return violation("an observer asks for another run");
  if (observer.phase == Phase::kWaits || unsent > 0)
    return violation("an observer asks before it has read its answer");
  observer.phase = Phase::kWaits;
  observer.question = ++questions_;
  return {};
}

Instant Observers::due(const Observer& observer) const {
  PCCL_ASSERT(observer.phase == Phase::kWaits);
  const auto of_run = next_of_.find(observer.run);
  return of_run == next_of_.end() ? next_ : std::max(next_, of_run->second);
}

std::optional<Observers::Due> Observers::take_due(Instant now) {
  const Observer* first = nullptr;
  for (const auto& [id, observer] : all_) {
    if (observer.phase != Phase::kWaits || due(observer) > now) continue;
    if (first == nullptr || observer.question < first->question) first = &observer;
  }
  if (first == nullptr) return std::nullopt;
  Due found{first->run, {}};
  for (auto& [id, observer] : all_) {
    if (observer.phase != Phase::kWaits || observer.run != found.run) continue;
    observer.phase = Phase::kAnswered;
    observer.answered_at = now;
    observer.look_at = now + kObserverReadTimeout;
    found.observers.push_back(id);
  }
  next_ = now + kPause;
  std::erase_if(next_of_, [now](const auto& run) { return run.second <= now; });
  next_of_[found.run] = now + kSnapshotIntervalMin;
  return found;
}

std::vector<Observers::Dropped> Observers::take_overdue(Instant now, const Unsent& unsent) {
  std::vector<Dropped> dropped;
  for (auto& [id, observer] : all_) {
    if (observer.phase != Phase::kAnswered || now < observer.look_at) continue;
    const Instant idle_until = observer.answered_at + kObserverIdleMax;
    if (unsent(id) > 0) {
      dropped.push_back({id, "it has not read its answer within " + text(kObserverReadTimeout)});
    } else if (now >= idle_until) {
      dropped.push_back({id, "it has asked nothing for " + text(kObserverIdleMax)});
    } else {
      observer.look_at = idle_until;
    }
  }
  for (const Dropped& one : dropped) forget(one.id);
  return dropped;
}

std::optional<Instant> Observers::deadline() const {
  std::optional<Instant> first;
  for (const auto& [id, observer] : all_) {
    const Instant at = observer.phase == Phase::kWaits ? due(observer) : observer.look_at;
    if (!first || at < *first) first = at;
  }
  return first;
}

void Observers::check() const {
  PCCL_ASSERT(all_.size() <= most_);
  for (const auto& [id, observer] : all_) {
    PCCL_ASSERT(!observer.run.empty() && observer.question <= questions_);
    PCCL_ASSERT(observer.phase == Phase::kWaits || observer.look_at > observer.answered_at);
  }
}

}  // namespace pccl::master
