#include "master/epochs/proposed_abort.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::master {

using protocol::OpState;

States answers_to(const OpTable& table, const OpTable::Op& op) {
  PCCL_ASSERT(op.proposal.has_value());
  States states;
  for (uint32_t rank = 0; rank < table.members.size(); ++rank) {
    const auto answer = op.answers.find(rank);
    const bool is_done = op.at[rank] == OpTable::At::kDone;
    if (answer != op.answers.end()) {
      states[table.members[rank]] = answer->second;
    } else if (table.left.contains(rank)) {
      states[table.members[rank]] = is_done ? OpState::kDone : OpState::kNotDone;
    }
  }
  return states;
}

std::optional<std::vector<PeerId>> decide_abort(const States& answers, size_t members) {
  const auto not_done = std::count_if(answers.begin(), answers.end(), [](const auto& at) {
    return at.second == OpState::kNotDone;
  });
  if (not_done >= 2) return std::vector<PeerId>();
  if (answers.size() < members) return std::nullopt;
  PCCL_ASSERT(not_done == 1);  // otherwise all are done, and it has committed
  return contradicting(answers);
}

std::string contradiction_text(const OpTable& table, OpKey key, const States& states) {
  const OpTable::Op* const op = table.find(key);
  PCCL_ASSERT(op != nullptr);
  std::vector<uint32_t> returned, not_done;
  for (const auto& [peer, state] : states) {
    if (state == OpState::kReturned) returned.push_back(table.rank(peer));
    if (state == OpState::kNotDone) not_done.push_back(table.rank(peer));
  }
  return "the reports on " + table.name(op->info, key) + " contradict each other: returned by " +
         ranks_text(returned, table.names) + ", which needs all others; not finished by " +
         ranks_text(not_done, table.names);
}

}  // namespace pccl::master
