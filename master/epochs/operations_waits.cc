// The part of Operations about waits: the members that are in no call, and those that wait for
// another one to begin an operation.

#include <algorithm>

#include "master/epochs/operations.h"

namespace pccl::master {
namespace {

// The search for two sends that face each other covers at most this number of operations. Each send
// that times out starts a search, so a member with very many sends could otherwise keep the master
// busy.
constexpr size_t kFacingLookMax = 4096;

}  // namespace

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

// The sender gives up a send to a lost member, so the send does not begin again.
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
      if (op.at[other] != At::kNothing && !is_in(newcomers, other) && !left_.contains(other))
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

std::vector<Operations::Waiting> Operations::waits() const {
  std::map<Instant, std::vector<Table::const_iterator>> by_age;
  for (auto at = table_.begin(); at != table_.end(); ++at) {
    if (!at->second.settled && at->second.begun < parties(at->second))
      by_age[at->second.since].push_back(at);
  }
  std::vector<Waiting> all;
  std::vector<bool> waits(members_.size());
  for (const auto& [since, operations] : by_age) {
    for (const Table::const_iterator& at : operations) {
      std::vector<uint32_t> waiting;
      for (uint32_t rank = 0; rank < members_.size(); ++rank) {
        if (at->second.at[rank] == At::kNothing || waits[rank] || left_.contains(rank)) continue;
        waits[rank] = true;
        waiting.push_back(rank);
      }
      if (!waiting.empty()) all.push_back(wait_of(at->first, at->second, std::move(waiting)));
    }
  }
  return all;
}

Operations::Waiting Operations::wait_of(OpKey key, const Op& op,
                                        std::vector<uint32_t> waiting) const {
  Waiting wait{key, {}, op.since, std::move(waiting), ranks_at(op, At::kNothing), facing_text(op)};
  PCCL_ASSERT(!wait.waiting.empty() && !wait.missing.empty());
  Op seen = op;
  const bool receiver_waits = transfers(op.info) && members_[wait.missing[0]] == op.info.root;
  if (receiver_waits) seen.info.kind = protocol::OpKind::kRecv;
  wait.name = name(seen, key);
  return wait;
}

// Whether each of the two is a send to the sender of the other, and no receiver has begun.
bool Operations::faces(const Op& op, const Op& other) const {
  const auto only_sent = [this](const Op& one) {
    return transfers(one.info) && !one.settled && one.at[rank(one.info.receiver)] == At::kNothing &&
           one.at[rank(one.info.root)] != At::kNothing;
  };
  return only_sent(op) && only_sent(other) && op.info.root == other.info.receiver &&
         op.info.receiver == other.info.root;
}

// When one of two sends that face each other times out, the other one will soon do so. Its error
// needs the same reason.
void Operations::mark_faced(const Op& op) {
  for (auto& [key, other] : table_) other.faced |= faces(op, other);
}

std::string Operations::facing_text(const Op& op) const {
  if (!transfers(op.info)) return {};
  const bool looks = table_.size() <= kFacingLookMax;
  const bool faces_one = looks && std::any_of(table_.begin(), table_.end(),
                                              [&](const auto& at) { return faces(op, at.second); });
  if (!op.faced && !faces_one) return {};
  return ranks_text({rank(op.info.receiver)}, names_) + ", which waits in a send to " +
         ranks_text({rank(op.info.root)}, names_) +
         ": both send and neither receives. One of them has to call recv first, or both have to "
         "use isend";
}

}  // namespace pccl::master
