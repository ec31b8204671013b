#include "master/members/telemetries.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::master {

void Telemetries::update(const std::vector<PeerId>& members) {
  if (!is_watched()) {
    for (const auto& [member, connection] : asked_) {
      if (connections_.find(connection) != nullptr) connections_.send(member, protocol::Observe{0});
    }
    asked_.clear();
    reports_.clear();
    return;
  }
  const auto is_gone = [&members](const auto& entry) {
    return std::find(members.begin(), members.end(), entry.first) == members.end();
  };
  std::erase_if(asked_, is_gone);
  std::erase_if(reports_, is_gone);
  constexpr auto kMilliseconds = kInterval / std::chrono::milliseconds(1);
  for (const PeerId member : members) {
    if (!connections_.connected(member)) continue;
    const ConnectionId connection = connections_.of(member);
    if (connections_.find(connection)->phase != ConnectionPhase::kMember) continue;
    const auto [at, fresh] = asked_.try_emplace(member, connection);
    if (!fresh && at->second == connection) continue;
    at->second = connection;
    connections_.send(member, protocol::Observe{static_cast<uint32_t>(kMilliseconds)});
  }
}

void Telemetries::on(PeerId member, const protocol::Telemetry& telemetry) {
  if (!asked_.contains(member)) return;
  const auto [at, fresh] = reports_.try_emplace(member);
  Reports& reports = at->second;
  // Totals only grow, unless the peer lies.
  const bool continues = !fresh && telemetry.all_us > reports.last.telemetry.all_us;
  reports.before = continues ? std::optional(reports.last) : std::nullopt;
  reports.last = {telemetry, context_.now};
}

const Telemetries::Reports* Telemetries::find(PeerId member) const {
  const auto at = reports_.find(member);
  return at == reports_.end() ? nullptr : &at->second;
}

std::vector<protocol::Scalar> Telemetries::new_scalars(PeerId member) const {
  const Reports* const reports = find(member);
  if (reports == nullptr) return {};
  std::vector<protocol::Scalar> all = reports->last.telemetry.scalars;
  if (!reports->before) return all;
  const auto& before = reports->before->telemetry.scalars;
  std::erase_if(all, [&before](const protocol::Scalar& one) {
    return std::find(before.begin(), before.end(), one) != before.end();
  });
  return all;
}

void Telemetries::check() const {
  for (const auto& [member, reports] : reports_) PCCL_ASSERT(asked_.contains(member));
  PCCL_ASSERT(until_ > Instant{} || asked_.empty());
}

}  // namespace pccl::master
