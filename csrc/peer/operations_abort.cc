// The aborts of Operations (operations.h): the requests of this peer, and its answers to the abort
// proposals of the master (PROTOCOL.md, section 3). Both are binding in the present epoch.

#include <utility>

#include "csrc/base/assert.h"
#include "csrc/peer/operations.h"

namespace pccl::peer {

using State = Operation::State;

protocol::AbortRequest Operations::abort_request(OpKey key, Code code, std::string text) const {
  PCCL_ASSERT(code != Code::kOk);
  return {membership_.epoch(), key, code, std::move(text)};
}

void Operations::request_abort(OpKey key, Operation& op, Code code, std::string text) {
  PCCL_ASSERT(!op.returned);
  if (op.request) return;  // one reason is enough
  op.request = abort_request(key, code, std::move(text));
  // A frozen operation gets its outcome at the end of the epoch, or requests the abort after it.
  if (!op.begun || membership_.frozen()) return;
  // After the request, the operation must not become done.
  if (op.state == State::kRunning) op.enter(State::kFrozen);
  context_.send(*op.request);
}

// An operation that has not begun in this epoch is frozen when it begins. A member that is not done
// requests the abort, too: it never becomes done here, even if a restarted master has forgotten the
// proposal, and whoever asked for it does not ask again.
Status Operations::on_abort_proposal(const protocol::AbortProposal& what) {
  if (what.code == Code::kOk) return violation("AbortProposal without a reason");
  if (what.epoch != membership_.epoch() || membership_.frozen()) return {};
  const auto at = open_.find(what.op);
  auto state = protocol::OpState::kNotDone;
  if (at != open_.end() && at->second.begun) {
    Operation& op = at->second;
    op.answered = true;
    if (op.state == State::kRunning) {
      op.enter(State::kFrozen);
      op.request = abort_request(what.op, what.code, what.text);
    }
    state = op.report(what.op).state;
  } else if (at != open_.end() || !was_called(what.op)) {
    if (asked_.size() >= protocol::kOpsOpenMax)
      return violation("more than " + std::to_string(protocol::kOpsOpenMax) +
                       " abort proposals for operations that have not begun");
    asked_.try_emplace(what.op, abort_request(what.op, what.code, what.text));
  }
  context_.send(protocol::AbortAnswer{what.epoch, what.op, state});
  return {};
}

}  // namespace pccl::peer
