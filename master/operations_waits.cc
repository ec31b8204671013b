// The part of Operations that says for whom members wait: who is in no call at all, and who waits
// for a member that has not begun an operation.

#include <algorithm>

#include "master/operations.h"

namespace pccl::master {

bool Operations::is_in_any(PeerId peer) const {
  const uint32_t mine = rank(peer);
  const auto open = [mine](const auto& entry) {
    return !entry.second.settled && entry.second.at[mine] != At::kNothing;
  };
  return any_source_.asks(peer) || std::any_of(table_.begin(), table_.end(), open);
}

bool Operations::is_to_repeat(PeerId peer) const {
  return std::any_of(begun_before_.begin(), begun_before_.end(),
                     [peer](const auto& entry) { return entry.second.contains(peer); });
}

// Its sender gives up a send to a lost member, and nobody begins it again.
bool Operations::is_cut_off(const protocol::OpInfo& info, const std::vector<PeerId>& members) {
  if (info.kind != protocol::OpKind::kSend) return false;
  const auto stays = [&members](PeerId peer) {
    return std::find(members.begin(), members.end(), peer) != members.end();
  };
  return !stays(info.root) || !stays(info.receiver);
}

Operations::Awaited Operations::awaited(PeerId peer, const std::vector<PeerId>& newcomers) const {
  Awaited awaited;
  const uint32_t mine = rank(peer);
  for (const auto& [key, op] : table_) {
    if (op.settled || op.at[mine] != At::kNothing || !concerns(op, mine)) continue;
    for (uint32_t other = 0; other < members_.size(); ++other) {
      if (op.at[other] != At::kNothing && !is_in(newcomers, other))
        awaited.by.insert(members_[other]);
    }
    if (awaited.call.empty()) awaited.call = text(op.info, who()) + " " + text(op.info, key);
    if (awaited.by.size() + 1 == members_.size()) break;  // all others
  }
  PCCL_ASSERT(!awaited.by.contains(peer));
  return awaited;
}

std::string Operations::under_way() const {
  for (const auto& [key, op] : table_) {
    if (!op.settled && op.begun == parties(op)) return name(op, key);
  }
  return {};
}

}  // namespace pccl::master
