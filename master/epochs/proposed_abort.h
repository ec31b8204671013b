// proposed_abort: decides how an operation ends whose abort is proposed, from the answers of the
// members (PROTOCOL.md, section 3). A member returns an operation that members agree on when all
// others have sent it their kDone. A liar can send its kDone, and then ask for the abort. So the
// master asks all members, and their answers are binding:
// 1. If two members are not done, one of them is honest, so no honest member has returned the
//    operation: it is aborted, and nobody else is awaited.
// 2. Else, when all have answered: if one has returned the operation and one is not done, one of
//    the two lies (contradicting() in verdict.h). Otherwise it is aborted.
// tests/model/verdict.cc checks these rules exhaustively. Pure functions; Operations calls them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "master/epochs/op_table.h"
#include "master/epochs/verdict.h"

namespace pccl::master {

// The answers so far, to the proposed abort of this operation. A member that has left has answered.
States answers_to(const OpTable& table, const OpTable::Op& op);
// Nothing: more answers are needed. Else the members that lie; if there are none, the operation is
// aborted. REQUIRES: some member is not done, or not all have answered. `members`: all of them.
std::optional<std::vector<PeerId>> decide_abort(const States& answers, size_t members);
// The reason why members are removed that contradict each other.
std::string contradiction_text(const OpTable& table, OpKey key, const States& states);

}  // namespace pccl::master
