#include "master/group/wait_report.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::master {

std::string wait_text(const Wait& wait, Instant now) {
  return wait.what + " has waited for " + text(now - wait.since) + " " + wait.why;
}

std::vector<WaitReport::Announcement> WaitReport::look(const std::vector<Wait>& waits,
                                                       Duration limit, Instant now) {
  std::vector<Announcement> all;
  for (auto at = told_.begin(); at != told_.end();) {
    const auto here = at++;
    const bool continues = std::any_of(waits.begin(), waits.end(), [&here](const Wait& wait) {
      return wait.since == here->first.first && wait.what == here->first.second;
    });
    if (!continues) all.push_back(end(here, now));
  }
  for (const Wait& wait : waits) {
    PCCL_ASSERT(!wait.waiting.empty());
    const Key key{wait.since, wait.what};
    const bool announced = told_.contains(key);
    if (!announced && now - std::max(wait.since, ended_) < limit) continue;
    Told& told = told_[key];
    told.call = wait.call;
    Announcement news{{}, wait_text(wait, now), !announced};
    for (const PeerId peer : wait.waiting) {
      if (told.peers.insert(peer).second) news.to.push_back(peer);
    }
    if (!news.to.empty()) all.push_back(std::move(news));
  }
  return all;
}

std::vector<WaitReport::Announcement> WaitReport::end(const Wait::Call& call, Instant now) {
  std::vector<Announcement> all;
  for (auto at = told_.begin(); at != told_.end();) {
    const auto here = at++;
    if (here->second.call == call) all.push_back(end(here, now));
  }
  return all;
}

WaitReport::Announcement WaitReport::end(Waits::iterator at, Instant now) {
  const auto& [key, told] = *at;
  PCCL_ASSERT(!told.peers.empty());
  Announcement over{{told.peers.begin(), told.peers.end()},
                    key.second + " no longer waits, after " + text(now - key.first),
                    true,
                    true};
  ended_ = now;
  told_.erase(at);
  return over;
}

}  // namespace pccl::master
