#include "master/state/drifts.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "master/text_format.h"

namespace pccl::master {

void Drifts::elected(const std::vector<OfferOf>& offers, const std::optional<AgreedState>& recorded,
                     const Election& election) {
  PCCL_ASSERT(election.refusal.empty());
  found_.clear();
  const auto votes = [&offers](PeerId peer) {
    return std::ranges::any_of(offers, [peer](const OfferOf& one) { return one.peer == peer; });
  };
  std::erase_if(all_, [&votes](const auto& at) { return !votes(at.first); });
  if (!recorded) return;
  const auto receives = [&election](PeerId peer) {
    return std::ranges::find(election.receivers, peer) != election.receivers.end();
  };
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const OfferOf& one = offers[rank];
    if (!receives(one.peer)) continue;
    const auto last = one.trained ? std::optional(recorded->revision) : std::nullopt;
    const auto drift = protocol::drift_of(
        {last, *one.offer, entries_of(one), election.agreed.revision, election.entries});
    if (!drift) continue;
    const std::string name = one.name.empty() ? "" : " (" + one.name + ")";
    found_.push_back({one.peer, "rank " + std::to_string(rank) + name, *drift});
  }
}

std::vector<std::string> Drifts::agreed(GroupId group) {
  std::vector<std::string> warnings;
  for (auto& [peer, whom, drift] : std::exchange(found_, {})) {
    protocol::Drift& last = all_[peer];
    drift.count = last.count + 1;
    last = drift;
    if (protocol::is_announced(last.count))
      warnings.push_back(protocol::drift_warning(whom + group_text(group), last));
  }
  return warnings;
}

void Drifts::check() const {
  PCCL_ASSERT(all_.size() <= protocol::kMembersMax);
  for (const auto& [peer, drift] : all_) PCCL_ASSERT(drift.count > 0);
}

}  // namespace pccl::master
