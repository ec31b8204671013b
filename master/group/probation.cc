#include "master/group/probation.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::master {

bool Probation::due(Instant now) {
  if (!last_look_ || now >= *last_look_ + kLookAgain) return true;
  next_look_ = *last_look_ + kLookAgain;
  return false;
}

Instant Probation::end(const Wait& wait, Duration timeout) {
  PCCL_ASSERT(!wait.elsewhere || *wait.elsewhere >= wait.since);
  const Instant late = wait.since + timeout;
  return wait.elsewhere ? std::min(late, *wait.elsewhere + kElsewhereMax) : late;
}

std::vector<Misfit> Probation::look(const std::vector<Seen>& all, Duration timeout, Instant now) {
  PCCL_ASSERT(due(now));
  last_look_ = now;
  next_look_.reset();
  std::map<PeerId, Wait> waits;
  std::vector<Misfit> misfits;
  for (const Seen& seen : all) {
    if (seen.awaited.empty()) continue;
    const auto before = waits_.find(seen.peer);
    Wait wait = before == waits_.end() ? Wait{now, {}, false} : before->second;
    if (seen.elsewhere.empty()) wait.elsewhere.reset();
    if (!seen.elsewhere.empty() && !wait.elsewhere) wait.elsewhere = now;
    const Instant ends = end(wait, timeout);
    const bool was_overdue = wait.overdue;
    wait.overdue = now >= ends && !seen.silent;
    if (wait.overdue && was_overdue) {
      std::string why = "it called " + seen.elsewhere + ", and the others " + seen.awaited;
      if (seen.fetches) {
        why = "in " + seen.awaited + " nothing has reached it for " + text(timeout) + " (" +
              setting_ + ")";
      } else if (seen.asked) {
        why = "it did not answer within " + text(timeout) + " whether it has finished " +
              seen.awaited;
      } else if (seen.elsewhere.empty()) {
        why =
            "it did not call " + seen.awaited + " within " + text(timeout) + " (" + setting_ + ")";
        if (!seen.instead.empty()) why += "; it called " + seen.instead + ", and nobody else did";
      }
      misfits.push_back({seen.peer, std::move(why), !seen.fetches});
    }
    const Instant next = now >= ends ? now + kLookAgain : ends;
    next_look_ = next_look_ ? std::min(*next_look_, next) : next;
    const bool fresh = waits.emplace(seen.peer, wait).second;
    PCCL_ASSERT(fresh);
  }
  waits_ = std::move(waits);
  return misfits;
}

std::optional<Instant> Probation::deadline() const { return next_look_; }

void Probation::check() const {
  PCCL_ASSERT(!next_look_ || (last_look_ && *next_look_ > *last_look_));
  PCCL_ASSERT(waits_.empty() || next_look_);
  for (const auto& [peer, wait] : waits_) {
    PCCL_ASSERT(wait.since <= *last_look_);
    if (wait.elsewhere)
      PCCL_ASSERT(*wait.elsewhere >= wait.since && *wait.elsewhere <= *last_look_);
  }
}

}  // namespace pccl::master
