#include "master/shell/observing.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "master/operator/control.h"

namespace pccl::master {
Observing::Observing(net::Loop& loop, Callbacks callbacks, size_t most)
    : callbacks_(std::move(callbacks)), observers_(most), timer_(loop, [this] { work(); }) {}

std::optional<protocol::Reject> Observing::add(ConnectionId id, const std::string& run) {
  auto rejected = observers_.add(id, run);
  arm();
  return rejected;
}

void Observing::receive(ConnectionId id, const protocol::Message& message) {
  const Status status = observers_.receive(id, message, callbacks_.unsent(id));
  if (!status.ok()) callbacks_.close(id, status.message);
  arm();
}

// At most one snapshot, so that the loop serves its peers between two of them.
void Observing::work() {
  const Instant now = monotonic_now();
  for (const auto& [id, why] : observers_.take_overdue(now, callbacks_.unsent))
    callbacks_.close(id, why);
  if (const auto due = observers_.take_due(now)) answer(*due);
#ifndef NDEBUG
  observers_.check();
#endif
  arm();
}

// The snapshot may end the run, and so close connections.
void Observing::answer(const Observers::Due& due) {
  const auto answer = parts_of(due.run);
  for (const ConnectionId id : due.observers) {
    if (!observers_.contains(id)) continue;
    if (const auto* rejected = std::get_if<protocol::Reject>(&answer)) {
      callbacks_.refuse(id, due.run, *rejected);
      continue;
    }
    for (const auto& part : std::get<std::vector<protocol::Message>>(answer))
      callbacks_.send(id, part);
  }
}

std::variant<std::vector<protocol::Message>, protocol::Reject> Observing::parts_of(
    const std::string& run) {
  const auto snapshot = callbacks_.snapshot_of(run);
  if (const auto* rejected = std::get_if<protocol::Reject>(&snapshot)) return *rejected;
  const std::string text = answer_line(std::get<nlohmann::json>(snapshot));
  constexpr size_t kMost = protocol::kSnapshotBytesMax, kPart = protocol::kSnapshotPartBytesMax;
  if (text.size() > kMost) {
    return protocol::Reject{Code::kInvalidState,
                            "the snapshot takes " + count_text(text.size(), "byte") +
                                ", and a master sends at most " + std::to_string(kMost) +
                                ": ask on its machine (`pccl status`)"};
  }
  std::vector<protocol::Message> parts;
  for (size_t at = 0; at < text.size(); at += kPart)
    parts.emplace_back(protocol::Snapshot{text.substr(at, kPart), at + kPart >= text.size()});
  return parts;
}

void Observing::arm() {
  const auto at = observers_.deadline();
  at ? timer_.arm(*at) : timer_.disarm();
}

}  // namespace pccl::master
