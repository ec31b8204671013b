// Proposed aborts: how an operation is aborted that members may have committed without the master
// (PROTOCOL.md, section 3). A member returns such an operation when all others have sent it their
// kDone. A liar can send its kDone, and then ask for the abort. So the master asks all members, and
// their answers are binding:
// - If two members are not done, one of them is honest, so no honest member has returned the
//   operation: it is aborted, and nobody else is awaited.
// - Else, when all have answered: if one has returned the operation and one is not done, one of the
//   two lies (contradicting() in verdict.h). Otherwise it is aborted.
// tests/model/verdict.cc checks these rules exhaustively.
#include <algorithm>

#include "csrc/base/assert.h"
#include "master/context.h"
#include "master/epochs/operation_waits.h"
#include "master/epochs/operations.h"

namespace pccl::master {

using protocol::OpState;

Status Operations::abort(PeerId peer, const protocol::AbortRequest& request,
                         const MissingText& missing) {
  if (request.code == Code::kOk) return violation("AbortRequest without a reason");
  const auto at = table_.ops.find(request.op);
  if (at == table_.ops.end() || at->second.settled) return {};
  Op& op = at->second;
  const uint32_t rank = table_.rank(peer);
  if (op.at[rank] == At::kNothing) return violation("AbortRequest before Begin");
  if (table_.may_be_returned(op))
    op.answers.emplace(rank, op.at[rank] == At::kDone ? OpState::kDone : OpState::kNotDone);
  if (op.proposal) {
    decide_proposal(at);
    return {};
  }
  const OperationWaits::GivenUp given_up = waits().giving_up(request, missing);
  if (given_up.is_facing) mark_faced(op);
  give_up(at, request.code, given_up.text);
  return {};
}

// Aborts the operation, at once or after the members have been asked.
void Operations::give_up(Ops::iterator at, Code code, const std::string& text) {
  Op& op = at->second;
  if (op.proposal) return;  // the first reason counts
  if (!table_.may_be_returned(op)) return settle(at, protocol::Outcome::kAborted, code, text);
  op.proposal = protocol::AbortProposal{table_.epoch, at->first, code,
                                        std::string(cut(text, protocol::kTextBytesMax))};
  ++table_.proposed;
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
    if (!table_.left.contains(rank) && !op.answers.contains(rank))
      proposals_.emplace_back(table_.members[rank], *op.proposal);
  }
  decide_proposal(at);
}

Status Operations::answer(PeerId peer, const protocol::AbortAnswer& answer) {
  const auto at = table_.ops.find(answer.op);
  if (at == table_.ops.end() || at->second.settled) return {};
  const Op& op = at->second;
  const uint32_t rank = table_.rank(peer);
  if (!op.proposal) return violation("AbortAnswer without AbortProposal");
  const bool is_done = op.at[rank] == At::kDone;
  if (is_done == (answer.state != OpState::kNotDone)) {
    if (at->second.answers.emplace(rank, answer.state).second) decide_proposal(at);
    return {};  // the first answer is binding
  }
  return violation("it answers that it is " + std::string(is_done ? "not done" : "done") +
                   " with " + table_.name(op.info, answer.op) + ", and has " +
                   (is_done ? "" : "not ") + "sent Done");
}

bool Operations::is_bound(const Op& op, uint32_t rank) const {
  const auto answer = op.answers.find(rank);
  return answer != op.answers.end() && answer->second == OpState::kNotDone;
}

void Operations::decide_proposal(Ops::iterator at) {
  Op& op = at->second;
  States states;
  size_t not_done = 0;
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
    const auto answer = op.answers.find(rank);
    if (answer != op.answers.end()) {
      states[table_.members[rank]] = answer->second;
    } else if (table_.left.contains(rank)) {
      states[table_.members[rank]] = op.at[rank] == At::kDone ? OpState::kDone : OpState::kNotDone;
    } else {
      continue;
    }
    if (states[table_.members[rank]] == OpState::kNotDone) ++not_done;
  }
  const bool all = states.size() == table_.members.size();
  if (not_done < 2 && !all) return;
  PCCL_ASSERT(not_done > 0);  // otherwise all are done, and it is settled
  const std::vector<PeerId> liars = not_done < 2 ? contradicting(states) : std::vector<PeerId>();
  if (liars.empty())
    return settle(at, protocol::Outcome::kAborted, op.proposal->code, op.proposal->text);
  const std::string why = contradiction_text(at->first, states);
  bool any = false;
  for (const PeerId peer : liars) {
    if (table_.left.contains(table_.rank(peer))) continue;
    liars_.push_back({peer, why});
    any = true;
  }
  // The liar has left. All others are done.
  if (!any) settle(at, protocol::Outcome::kCommitted, Code::kOk, {});
}

std::vector<std::pair<PeerId, protocol::AbortProposal>> Operations::take_proposals() {
  return std::exchange(proposals_, {});
}

std::string Operations::asked(PeerId peer) const {
  if (table_.proposed == 0) return {};
  const std::vector<protocol::AbortProposal> all = proposals(peer);
  if (all.empty()) return {};
  return table_.name(table_.ops.at(all[0].op).info, all[0].op);
}

std::vector<protocol::AbortProposal> Operations::proposals(PeerId peer) const {
  std::vector<protocol::AbortProposal> all;
  for (const auto& [key, op] : table_.ops) {
    if (op.proposal && !op.settled && !op.answers.contains(table_.rank(peer)))
      all.push_back(*op.proposal);
  }
  return all;
}

}  // namespace pccl::master
