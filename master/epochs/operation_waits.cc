#include "master/epochs/operation_waits.h"

#include <algorithm>
#include <map>

#include "csrc/base/assert.h"

namespace pccl::master {
namespace {

// Sends that face each other are searched for only if the table has at most this number of
// operations. Each send that times out starts a search, so a member with very many sends could
// otherwise keep the master busy.
constexpr size_t kFacingLookMax = 4096;

}  // namespace

// ---- One member ----

bool OperationWaits::is_in(PeerId peer, OpKey op) const {
  const Op* const known = table_.find(op);
  return known != nullptr && !known->settled && known->at[table_.rank(peer)] != At::kNothing;
}

bool OperationWaits::awaits(PeerId peer, OpKey op) const {
  const Op* const known = table_.find(op);
  return known != nullptr && table_.concerns(*known, table_.rank(peer)) &&
         known->at[table_.rank(peer)] == At::kNothing;
}

bool OperationWaits::is_in_any(PeerId peer) const {
  const uint32_t mine = table_.rank(peer);
  const auto open = [mine](const auto& entry) {
    return !entry.second.settled && entry.second.at[mine] != At::kNothing;
  };
  return table_.any_source.asks(peer) || std::any_of(table_.ops.begin(), table_.ops.end(), open);
}

bool OperationWaits::is_to_repeat(PeerId peer) const {
  return std::any_of(table_.begun_before.begin(), table_.begun_before.end(),
                     [peer](const auto& entry) { return entry.second.contains(peer); });
}

bool OperationWaits::is_held_up(PeerId peer) const {
  const uint32_t mine = table_.rank(peer);
  return table_.any_source.asks(peer) ||
         std::any_of(table_.ops.begin(), table_.ops.end(), [&](const auto& entry) {
           return !entry.second.settled && entry.second.at[mine] == At::kBegun;
         });
}

std::optional<std::vector<uint32_t>> OperationWaits::missing_in(PeerId member, OpKey op) const {
  const Op* const known = table_.find(op);
  if (!is_in(member, op) || known->proposal) return std::nullopt;
  std::vector<uint32_t> missing = table_.ranks_at(*known, At::kNothing);
  std::erase_if(missing,
                [&](uint32_t rank) { return table_.is_to_begin_again(table_.members[rank], op); });
  return missing;
}

// ---- All members ----

std::vector<OperationWaits::Waiting> OperationWaits::all() const {
  std::map<Instant, std::vector<std::pair<OpKey, const Op*>>> by_age;
  for (const auto& [key, op] : table_.ops) {
    if (!op.settled && op.begun < table_.parties(op)) by_age[op.since].emplace_back(key, &op);
  }
  std::vector<Waiting> all;
  std::vector<bool> waits(table_.members.size());
  for (const auto& [since, operations] : by_age) {
    for (const auto& [key, op] : operations) {
      std::vector<uint32_t> waiting;
      for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
        if (op->at[rank] == At::kNothing || waits[rank] || table_.left.contains(rank)) continue;
        waits[rank] = true;
        waiting.push_back(rank);
      }
      if (!waiting.empty()) all.push_back(wait_of(key, *op, std::move(waiting)));
    }
  }
  return all;
}

OperationWaits::Waiting OperationWaits::wait_of(OpKey key, const Op& op,
                                                std::vector<uint32_t> waiting) const {
  Waiting wait{key, op.since, std::move(waiting), table_.ranks_at(op, At::kNothing), is_facing(op)};
  PCCL_ASSERT(!wait.waiting.empty() && !wait.missing.empty());
  return wait;
}

OperationWaits::Awaited OperationWaits::awaited(PeerId peer,
                                                const std::vector<PeerId>& newcomers) const {
  Awaited awaited;
  const uint32_t mine = table_.rank(peer);
  for (const auto& [key, op] : table_.ops) {
    if (op.settled || op.at[mine] != At::kNothing || !table_.concerns(op, mine)) continue;
    for (uint32_t other = 0; other < table_.members.size(); ++other) {
      if (op.at[other] != At::kNothing && !table_.is_one_of(newcomers, other) &&
          !table_.left.contains(other))
        awaited.by.insert(table_.members[other]);
    }
    if (awaited.call.empty()) awaited.call = call(op, key);
    if (awaited.by.size() + 1 == table_.members.size()) break;  // `by` has all other members
  }
  PCCL_ASSERT(!awaited.by.contains(peer));
  return awaited;
}

std::string OperationWaits::asked_send(const std::vector<PeerId>& newcomers) const {
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
    if (table_.is_one_of(newcomers, rank) || !table_.any_source.asks(table_.members[rank]))
      continue;
    const std::string& tag = table_.any_source.asked_tag(table_.members[rank]);
    return "the send for which " + ranks_text({rank}, table_.names) +
           " waits in a receive from any rank" + (tag.empty() ? "" : " (" + tag + ")");
  }
  return {};
}

std::string OperationWaits::under_way() const {
  for (const auto& [key, op] : table_.ops) {
    if (!op.settled && op.begun == table_.parties(op)) return table_.name(op.info, key);
  }
  return {};
}

std::string OperationWaits::in_flight() const {
  for (const auto& [key, op] : table_.ops) {
    if (op.settled) continue;
    return count_text(table_.open, "operation") + (table_.open == 1 ? " is" : " are") +
           " in flight, for instance " + table_.name(op.info, key);
  }
  PCCL_ASSERT(table_.open == 0);
  return {};
}

std::string OperationWaits::call(const Op& op, OpKey key) const {
  return text(op.info, table_.who()) + " " + text(op.info, key);
}

// ---- An operation that others have not begun, in words ----

std::string OperationWaits::name(OpKey waiting) const {
  const Op& op = table_.ops.at(waiting);
  protocol::OpInfo info = op.info;
  if (awaits_sender(waiting)) info.kind = protocol::OpKind::kRecv;
  return table_.name(info, waiting);
}

bool OperationWaits::awaits_sender(OpKey waiting) const {
  const Op& op = table_.ops.at(waiting);
  return OpTable::transfers(op.info) && op.at[table_.rank(op.info.root)] == At::kNothing;
}

// ---- Newcomers ----

std::pair<size_t, size_t> OperationWaits::others(const Op& op,
                                                 const std::vector<PeerId>& newcomers) const {
  size_t begun = 0, not_begun = 0;
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
    if (!table_.concerns(op, rank) || table_.is_one_of(newcomers, rank)) continue;
    ++(op.at[rank] == At::kNothing ? not_begun : begun);
  }
  return {begun, not_begun};
}

OperationWaits::Standoff OperationWaits::standoff(PeerId newcomer,
                                                  const std::vector<PeerId>& newcomers) const {
  Standoff standoff;
  const uint32_t mine = table_.rank(newcomer);
  for (const auto& [key, op] : table_.ops) {
    if (op.settled || !table_.concerns(op, mine)) continue;
    const auto [begun, not_begun] = others(op, newcomers);
    const bool here = op.at[mine] != At::kNothing;
    const bool shared = here && begun > 0;
    const bool among_newcomers = here && begun + not_begun == 0;
    standoff.shares = standoff.shares || shared;
    standoff.held_up =
        standoff.held_up || ((shared || among_newcomers) && op.begun < table_.parties(op));
    std::string* what = nullptr;
    if (here && begun == 0 && not_begun > 0) what = &standoff.alone;
    if (!here && begun > 0) what = not_begun == 0 ? &standoff.awaited_by_all : &standoff.awaited;
    if (what != nullptr && what->empty()) *what = call(op, key);
  }
  return standoff;
}

bool OperationWaits::holds_up(PeerId peer, OpKey key, const std::vector<PeerId>& newcomers) const {
  const Op* const op = table_.find(key);
  if (op == nullptr || op->settled || op->proposal) return false;
  const auto [begun, not_begun] = others(*op, newcomers);
  return op->at[table_.rank(peer)] == At::kBegun && begun + not_begun > 0;
}

// ---- An operation that a member gives up ----

bool OperationWaits::faces(const Op& op, const Op& other) const {
  const auto only_sent = [this](const Op& one) {
    return OpTable::transfers(one.info) && !one.settled &&
           one.at[table_.rank(one.info.receiver)] == At::kNothing &&
           one.at[table_.rank(one.info.root)] != At::kNothing;
  };
  return only_sent(op) && only_sent(other) && op.info.root == other.info.receiver &&
         op.info.receiver == other.info.root;
}

OperationWaits::GivenUp OperationWaits::giving_up(const protocol::AbortRequest& request,
                                                  const MissingText& missing) const {
  const Op& op = table_.ops.at(request.op);
  GivenUp given_up{request.text};
  std::string& text = given_up.text;
  if (text.empty()) text = table_.name(op.info, request.op) + " was given up";
  // Otherwise the call itself is wrong, or the text names a cycle of waits.
  const bool waited = request.code != Code::kInvalidArgument && request.code != Code::kMismatch;
  auto idle = waited ? table_.ranks_at(op, At::kNothing) : std::vector<uint32_t>();
  const auto unfinished = table_.ranks_at(op, At::kBegun);
  std::vector<uint32_t> repeating;
  std::erase_if(idle, [&](uint32_t rank) {
    const bool again = table_.is_to_begin_again(table_.members[rank], request.op);
    if (again) repeating.push_back(rank);
    return again;
  });
  const auto has = [](const std::vector<uint32_t>& ranks) {
    return ranks.size() == 1 ? " has" : " have";
  };
  if (!idle.empty()) {
    given_up.is_facing = is_facing(op);
    text += "; it waited for " + (given_up.is_facing ? facing_text(request.op)
                                  : missing          ? missing(idle)
                                                     : ranks_text(idle, table_.names));
  }
  if (!repeating.empty()) {
    text += "; " + ranks_text(repeating, table_.names) + has(repeating) +
            " called it and not begun to repeat it, after a connection between peers was lost";
  }
  if (waited && !unfinished.empty() && idle.empty() && repeating.empty()) {
    text += "; " + ranks_text(unfinished, table_.names) + has(unfinished) +
            " called it and not finished";
  }
  return given_up;
}

bool OperationWaits::is_facing(const Op& op) const {
  if (!OpTable::transfers(op.info)) return false;
  if (op.faced) return true;
  return table_.ops.size() <= kFacingLookMax &&
         std::any_of(table_.ops.begin(), table_.ops.end(),
                     [&](const auto& at) { return faces(op, at.second); });
}

std::string OperationWaits::facing_text(OpKey send) const {
  const protocol::OpInfo& info = table_.ops.at(send).info;
  return ranks_text({table_.rank(info.receiver)}, table_.names) + ", which waits in a send to " +
         ranks_text({table_.rank(info.root)}, table_.names) +
         ": both send and neither receives. One of them has to call recv first, or both have to "
         "use isend";
}

}  // namespace pccl::master
