#include "master/wait_report.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::master {

std::vector<WaitReport::Announcement> WaitReport::look(const std::vector<Wait>& waits,
                                                       Duration limit, Instant now) {
  std::vector<Announcement> all;
  for (auto at = told_.begin(); at != told_.end();) {
    const auto& [key, told] = *at;
    const bool goes_on = std::any_of(waits.begin(), waits.end(), [&key = key](const Wait& wait) {
      return wait.since == key.first && wait.what == key.second;
    });
    if (goes_on) {
      ++at;
      continue;
    }
    PCCL_ASSERT(!told.empty());
    all.push_back({{told.begin(), told.end()},
                   key.second + " no longer waits, after " + text(now - key.first)});
    ended_ = now;
    at = told_.erase(at);
  }
  for (const Wait& wait : waits) {
    PCCL_ASSERT(!wait.waiting.empty());
    const Key key{wait.since, wait.what};
    const bool announced = told_.contains(key);
    if (!announced && now - std::max(wait.since, ended_) < limit) continue;
    std::set<PeerId>& told = told_[key];
    Announcement news{
        {}, wait.what + " has waited for " + text(now - wait.since) + " " + wait.why, !announced};
    for (const PeerId peer : wait.waiting) {
      if (told.insert(peer).second) news.to.push_back(peer);
    }
    if (!news.to.empty()) all.push_back(std::move(news));
  }
  return all;
}

}  // namespace pccl::master
