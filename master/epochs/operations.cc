//   an operation    event                                    to
//   (unknown)       Begin                                    open
//   open            Begin of others, the same description    open
//   open            Begin that differs                       settled: aborted, kMismatch
//   open            the same, but only newcomers differ      stays until all others have begun it:
//                   from the others                          then the newcomers are misfits
//   open            Done by all                              settled: committed
//   open, a send    Done by its receiver                     settled: committed
//   open            AbortRequest of a member not done        settled: aborted, its code
//   open            AbortRequest of a member that is done    stays: AbortProposal to those not done
//   open            update_topology, begun by some only      settled: aborted, kMembershipChanged
//   open            a member that is not done has left       settled: aborted, kPeerLost
//   settled         begun by all                             forgotten
//   any             Done, AbortRequest that crossed          stays
//                   the verdict

#include "master/epochs/operations.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "master/context.h"
#include "master/epochs/mismatch.h"

namespace pccl::master {
namespace {

// Maximum operations that a rank has begun: open ones, and settled ones that others have yet to
// begin.
constexpr size_t kBegunMax = 2 * protocol::kOpsOpenMax;

// Most operations that the reports after a restart of the master may add. It leaves room for new
// ones.
constexpr size_t kRestoredMax = protocol::kOpsKnownMax / 2;

}  // namespace

Operations::Operations(Epoch epoch, std::vector<PeerId> members, RankNames names)
    : epoch_(epoch),
      members_(std::move(members)),
      names_(std::move(names)),
      begun_by_(members_.size()),
      carried_by_(members_.size()) {
  for (uint32_t rank = 0; rank < members_.size(); ++rank) ranks_[members_[rank]] = rank;
  PCCL_ASSERT(ranks_.size() == members_.size());
}

// ---- The members that an operation concerns ----

bool Operations::concerns(const Op& op, uint32_t rank) const {
  PCCL_DCHECK(rank < members_.size() && op.at.size() == members_.size());
  if (!transfers(op.info)) return true;
  return members_[rank] == op.info.root || members_[rank] == op.info.receiver;
}

uint32_t Operations::parties(const Op& op) const {
  return transfers(op.info) ? 2 : static_cast<uint32_t>(members_.size());
}

bool Operations::finished(const Op& op) const {
  if (!transfers(op.info)) return op.done == members_.size();
  return op.at[rank(op.info.receiver)] == At::kDone;
}

bool Operations::has_begun(PeerId peer, OpKey op) const {
  const auto at = table_.find(op);
  return at != table_.end() && at->second.at[rank(peer)] != At::kNothing;
}

bool Operations::was_begun(PeerId peer, OpKey op) const {
  const auto before = begun_before_.find(op);
  return has_begun(peer, op) || (before != begun_before_.end() && before->second.contains(peer));
}

std::vector<uint32_t> Operations::ranks_at(const Op& op, At what) const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (concerns(op, rank) && op.at[rank] == what) ranks.push_back(rank);
  }
  return ranks;
}

// ---- Messages of peers ----

Status Operations::check_begin(PeerId peer, OpKey op, const protocol::OpInfo& info) const {
  const uint32_t rank = this->rank(peer);
  if (info.kind == protocol::OpKind::kRecv)
    return violation("Begin of a recv: both sides say send");
  if (transfers(info)) {
    const bool mine = members_[rank] == info.root || members_[rank] == info.receiver;
    const bool known = ranks_.contains(info.root) && ranks_.contains(info.receiver);
    if (!mine || !known || info.root == info.receiver) {
      return violation("Begin of a send that is not between this peer and another member");
    }
  }
  if (info.sends.size() != info.receives.size())
    return violation("Begin of " + text(info, op) + " with other parts to send than to receive");
  const auto at = table_.find(op);
  const bool begun = at != table_.end() && at->second.at[rank] != At::kNothing;
  if (begun && !at->second.restored) {
    return violation("Begin of " + text(info, op) + ", which it has begun before");
  }
  if (carried_by_[rank] + carried_bytes(info) > protocol::kCarriedBytesMax)
    return violation("more than " + std::to_string(protocol::kCarriedBytesMax) +
                     " bytes of tags and part sizes in flight");
  if (begun_by_[rank] < kBegunMax) return {};
  return violation("more than " + std::to_string(kBegunMax) + " operations in flight");
}

Status Operations::begin(PeerId peer, OpKey op, const protocol::OpInfo& info,
                         const std::vector<PeerId>& newcomers, Instant now) {
  const uint32_t rank = this->rank(peer);
  const Status status = check_begin(peer, op, info);
  if (!status.ok()) return status;
  if (has_begun(peer, op)) erase(table_.find(op));  // it was restored, and a report was wrong
  PCCL_ASSERT(begun_by_[rank] < kBegunMax);
  const auto [at, fresh] = table_.try_emplace(op);
  Op& known = at->second;
  if (fresh) {
    known.info = info;
    known.first = rank;
    carried_by_[rank] += carried_bytes(info);
    known.at.resize(members_.size());
    known.since = now;
    ++open_;
    PCCL_ASSERT(open_ <= table_.size());
  }
  if (!known.settled && known.info != info) {
    known.otherwise.emplace(rank, info);
    carried_by_[rank] += carried_bytes(info);
  }
  mark_begun(at, rank);
  if (!awaits_receiver(op, known)) {
    any_source_.taken(op);
  } else if (!any_source_.knows(op)) {
    any_source_.begun(epoch_, op, known.info);
  }
  if (!known.otherwise.empty()) {
    judge(at, newcomers);
  } else if (known.settled) {
    forget_if_acknowledged(at);
  } else if (const auto left = missed_by_left(known)) {
    settle_without(at, *left);
  } else if (const auto closed = missed_by_closed(known)) {
    settle_closed(at, {*closed});
  }
  return {};
}

bool Operations::is_in(const std::vector<PeerId>& peers, uint32_t rank) const {
  return std::find(peers.begin(), peers.end(), members_[rank]) != peers.end();
}

// The members that are no newcomers are right, if they agree. REQUIRES: some descriptions differ.
void Operations::judge(Table::iterator at, const std::vector<PeerId>& newcomers) {
  Op& op = at->second;
  PCCL_ASSERT(!op.otherwise.empty());
  if (op.settled) return forget_if_acknowledged(at);
  const auto described = [&op](uint32_t rank) -> const protocol::OpInfo& {
    const auto other = op.otherwise.find(rank);
    return other == op.otherwise.end() ? op.info : other->second;
  };
  const auto fits = [&](uint32_t rank, const std::vector<uint32_t>& others) {
    return std::all_of(others.begin(), others.end(), [&](uint32_t other) {
      return protocol::fit(described(rank), rank, described(other), other);
    });
  };
  std::vector<uint32_t> right;
  bool all_have_begun = true, agree = true;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (!concerns(op, rank) || is_in(newcomers, rank)) continue;
    if (op.at[rank] == At::kNothing) {
      all_have_begun = false;
    } else {
      agree = agree && fits(rank, right);
      right.push_back(rank);
    }
  }
  const bool nobody_to_compare = all_have_begun && right.empty();
  if (!agree || nobody_to_compare) {
    return settle(at, protocol::Outcome::kAborted, Code::kMismatch, mismatch(op, at->first));
  }
  if (!all_have_begun) return;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    const bool wrong = op.at[rank] != At::kNothing && !fits(rank, right);
    if (wrong) misfits_.push_back({members_[rank], mismatch(op, at->first)});
  }
}

// ---- Newcomers ----

std::pair<size_t, size_t> Operations::others(const Op& op,
                                             const std::vector<PeerId>& newcomers) const {
  size_t begun = 0, not_begun = 0;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (!concerns(op, rank) || is_in(newcomers, rank)) continue;
    ++(op.at[rank] == At::kNothing ? not_begun : begun);
  }
  return {begun, not_begun};
}

Operations::Standoff Operations::standoff(PeerId newcomer,
                                          const std::vector<PeerId>& newcomers) const {
  Standoff standoff;
  const uint32_t mine = rank(newcomer);
  for (const auto& [key, op] : table_) {
    if (op.settled || !concerns(op, mine)) continue;
    const auto [begun, not_begun] = others(op, newcomers);
    const bool here = op.at[mine] != At::kNothing;
    const bool shared = here && begun > 0;
    const bool among_newcomers = here && begun + not_begun == 0;
    standoff.shares = standoff.shares || shared;
    standoff.held_up = standoff.held_up || ((shared || among_newcomers) && op.begun < parties(op));
    std::string* what = nullptr;
    if (here && begun == 0 && not_begun > 0) what = &standoff.alone;
    if (!here && begun > 0) what = not_begun == 0 ? &standoff.awaited_by_all : &standoff.awaited;
    if (what != nullptr && what->empty()) *what = text(op.info, who()) + " " + text(op.info, key);
  }
  return standoff;
}

bool Operations::waits(PeerId peer) const {
  const uint32_t mine = rank(peer);
  return any_source_.asks(peer) ||
         std::any_of(table_.begin(), table_.end(), [&](const auto& entry) {
           return !entry.second.settled && entry.second.at[mine] == At::kBegun;
         });
}

std::string Operations::asked_send(const std::vector<PeerId>& newcomers) const {
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (is_in(newcomers, rank) || !any_source_.asks(members_[rank])) continue;
    const std::string& tag = any_source_.asked_tag(members_[rank]);
    return "the send for which " + ranks_text({rank}, names_) +
           " waits in a receive from any rank" + (tag.empty() ? "" : " (" + tag + ")");
  }
  return {};
}

bool Operations::holds_up(PeerId peer, OpKey key, const std::vector<PeerId>& newcomers) const {
  const auto at = table_.find(key);
  if (at == table_.end() || at->second.settled) return false;
  if (at->second.proposal) return false;  // it had an abort proposal
  const auto [begun, not_begun] = others(at->second, newcomers);
  return at->second.at[rank(peer)] == At::kBegun && begun + not_begun > 0;
}

void Operations::mark_begun(Table::iterator at, uint32_t rank) {
  Op& op = at->second;
  PCCL_ASSERT(op.at.size() == members_.size() && op.at[rank] == At::kNothing);
  op.at[rank] = At::kBegun;
  if (concerns(op, rank)) ++op.begun;
  if (!op.restored) ++begun_by_[rank];
}

bool Operations::awaits_receiver(OpKey key, const Op& op) const {
  return transfers(op.info) && !op.settled && op.at[rank(op.info.root)] != At::kNothing &&
         !was_begun(op.info.receiver, key);
}

Status Operations::done(PeerId peer, OpKey op) {
  const uint32_t rank = this->rank(peer);
  const auto at = table_.find(op);
  if (at == table_.end()) return {};  // it crossed the verdict, and the operation is forgotten
  Op& known = at->second;
  if (known.at[rank] == At::kNothing) return violation("Done before Begin");
  if (known.at[rank] == At::kDone || known.settled) return {};
  known.at[rank] = At::kDone;
  ++known.done;
  PCCL_ASSERT(known.done <= members_.size());
  if (finished(known)) settle(at, protocol::Outcome::kCommitted, Code::kOk, {});
  return {};
}

Status Operations::abort(PeerId peer, const protocol::AbortRequest& request,
                         const Missing& missing) {
  if (request.code == Code::kOk) return violation("AbortRequest without a reason");
  const auto at = table_.find(request.op);
  if (at == table_.end() || at->second.settled) return {};
  Op& op = at->second;
  const At asks = op.at[rank(peer)];
  if (asks == At::kNothing) return violation("AbortRequest before Begin");
  if (asks == At::kDone && protocol::agreed_among_members(op.info)) {
    if (!op.proposal) propose_abort(op, request);
    return {};
  }
  std::string text = request.text.empty() ? name(op, request.op) + " was given up" : request.text;
  const bool waited = request.code != Code::kInvalidArgument;  // otherwise the call is wrong
  auto idle = waited ? ranks_at(op, At::kNothing) : std::vector<uint32_t>();
  const auto unfinished = ranks_at(op, At::kBegun);
  std::vector<uint32_t> repeating;
  std::erase_if(idle, [&](uint32_t rank) {
    const auto before = begun_before_.find(request.op);
    const bool again = before != begun_before_.end() && before->second.contains(members_[rank]);
    if (again) repeating.push_back(rank);
    return again;
  });
  const auto has = [](const std::vector<uint32_t>& ranks) {
    return ranks.size() == 1 ? " has" : " have";
  };
  if (!idle.empty()) {
    const std::string faced = facing_text(op);
    text += "; it waited for " + (!faced.empty() ? faced
                                  : missing      ? missing(idle)
                                                 : ranks_text(idle, names_));
    if (!faced.empty()) mark_faced(op);
  }
  if (!repeating.empty()) {
    text += "; " + ranks_text(repeating, names_) + has(repeating) +
            " called it and not begun to repeat it, after a connection between peers was lost";
  }
  if (waited && !unfinished.empty() && idle.empty() && repeating.empty()) {
    text += "; " + ranks_text(unfinished, names_) + has(unfinished) + " called it and not finished";
  }
  settle(at, protocol::Outcome::kAborted, request.code, text);
  return {};
}

void Operations::propose_abort(Op& op, const protocol::AbortRequest& request) {
  PCCL_ASSERT(request.epoch == epoch_ && !op.proposal && !op.settled);
  op.proposal = protocol::AbortProposal{request.epoch, request.op, request.code, request.text};
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (op.at[rank] != At::kDone) proposals_.emplace_back(members_[rank], *op.proposal);
  }
}

std::vector<std::pair<PeerId, protocol::AbortProposal>> Operations::take_proposals() {
  return std::exchange(proposals_, {});
}

std::vector<protocol::AbortProposal> Operations::proposals(PeerId peer) const {
  std::vector<protocol::AbortProposal> all;
  for (const auto& [key, op] : table_) {
    if (op.proposal && !op.settled && op.at[rank(peer)] != At::kDone) all.push_back(*op.proposal);
  }
  return all;
}

// ---- How operations end ----

void Operations::settle(Table::iterator at, protocol::Outcome outcome, Code code,
                        const std::string& text) {
  PCCL_ASSERT(!at->second.settled && open_ > 0);
  PCCL_ASSERT((outcome == protocol::Outcome::kCommitted) == (code == Code::kOk));
  PCCL_ASSERT((code == Code::kOk) == text.empty());
  const protocol::OpInfo& info = at->second.info;
  protocol::Verdict verdict{
      at->first, outcome, code, std::string(cut(text, protocol::kTextBytesMax)), {}, {}};
  if (transfers(info)) verdict.sender = info.root, verdict.receiver = info.receiver;
  settled_.push_back(std::move(verdict));
  at->second.settled = true;
  forget_descriptions(at->second);
  begun_before_.erase(at->first);
  any_source_.taken(at->first);
  --open_;
  forget_if_acknowledged(at);
}

void Operations::forget_if_acknowledged(Table::iterator at) {
  PCCL_ASSERT(at->second.begun <= parties(at->second));
  if (acknowledged(at->second)) erase(at);
}

bool Operations::acknowledged(const Op& op) const {
  const auto awaited = [&](uint32_t rank) {
    return op.at[rank] == At::kNothing && concerns(op, rank);
  };
  const auto gone = std::count_if(left_.begin(), left_.end(), awaited);
  return op.begun + static_cast<uint32_t>(gone) == parties(op);
}

void Operations::erase(Table::iterator at) {
  PCCL_ASSERT(at != table_.end() && at->second.settled);
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (at->second.at[rank] == At::kNothing || at->second.restored) continue;
    PCCL_ASSERT(begun_by_[rank] > 0);
    --begun_by_[rank];
  }
  table_.erase(at);
}

void Operations::forget_descriptions(Op& op) {
  const auto forget = [this](uint32_t rank, const protocol::OpInfo& info) {
    PCCL_ASSERT(carried_by_[rank] >= carried_bytes(info));
    carried_by_[rank] -= carried_bytes(info);
  };
  forget(op.first, op.info);
  for (const auto& [rank, info] : op.otherwise) forget(rank, info);
  op.info.sends = op.info.receives = {};
  op.otherwise.clear();
}

// ---- Members that leave ----

void Operations::leave(PeerId peer) {
  const uint32_t rank = this->rank(peer);
  PCCL_ASSERT(!left_.contains(rank));
  left_.insert(rank);
  any_source_.forget_questions(peer);
  abort_without(rank, false);
  for (auto at = table_.begin(); at != table_.end();) {
    const auto here = at++;
    if (here->second.settled) forget_if_acknowledged(here);
  }
  end_questions_of_last();
}

void Operations::abort_all_with(PeerId left) {
  if (needs(left)) abort_without(rank(left), true);
}

void Operations::abort_without(uint32_t left, bool although_done) {
  for (auto at = table_.begin(); at != table_.end();) {
    const auto here = at++;
    Op& op = here->second;
    const bool is_done = op.at[left] == At::kDone;
    if (op.settled || !concerns(op, left) || (is_done && !although_done)) continue;
    if (!is_done || !protocol::agreed_among_members(op.info)) {
      settle_without(here, left);
    } else if (!op.proposal) {  // members may have returned it as committed
      propose_abort(op, {epoch_, here->first, Code::kPeerLost, without_text(here, left)});
    }
  }
}

// A rank that it concerns, that has left, and that is not done with it.
std::optional<uint32_t> Operations::missed_by_left(const Op& op) const {
  for (const uint32_t rank : left_) {
    if (concerns(op, rank) && op.at[rank] != At::kDone) return rank;
  }
  return std::nullopt;
}

void Operations::close_posting(PeerId voter) {
  const uint32_t closed = rank(voter);
  if (!closed_.insert(closed).second) return;
  for (auto at = table_.begin(); at != table_.end();) {
    const auto here = at++;
    const Op& op = here->second;
    const bool missed = concerns(op, closed) && op.at[closed] == At::kNothing;
    if (!op.settled && missed) settle_closed(here, {closed});
  }
}

std::optional<uint32_t> Operations::missed_by_closed(const Op& op) const {
  for (const uint32_t rank : closed_) {
    if (concerns(op, rank) && op.at[rank] == At::kNothing) return rank;
  }
  return std::nullopt;
}

void Operations::settle_without(Table::iterator at, uint32_t left) {
  settle(at, protocol::Outcome::kAborted, Code::kPeerLost, without_text(at, left));
}

std::string Operations::without_text(Table::const_iterator at, uint32_t left) const {
  return name(at->second, at->first) + " cannot complete: " + ranks_text({left}, names_) +
         " has left the group (destroy_process_group). update_topology continues without it";
}

bool Operations::needs(PeerId left) const {
  const auto known = ranks_.find(left);
  if (known == ranks_.end() || !left_.contains(known->second)) return false;
  return std::any_of(table_.begin(), table_.end(), [&](const auto& entry) {
    return !entry.second.settled && concerns(entry.second, known->second);
  });
}

void Operations::end_questions_of_last() {
  if (left_.size() + 1 != members_.size()) return;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (!left_.contains(rank)) any_source_.end_questions(epoch_, members_[rank]);
  }
}

void Operations::drain() {
  for (auto at = table_.begin(); at != table_.end();) {
    const auto here = at++;
    const Op& op = here->second;
    const auto idle = ranks_at(op, At::kNothing);
    if (!op.settled && !idle.empty()) settle_closed(here, idle);
  }
}

void Operations::settle_closed(Table::iterator at, const std::vector<uint32_t>& idle) {
  settle(at, protocol::Outcome::kAborted, Code::kMembershipChanged,
         name(at->second, at->first) + " was ended by update_topology: " +
             ranks_text(idle, names_) + " had not called it before; call it again");
}

std::string Operations::in_flight() const {
  for (const auto& [key, op] : table_) {
    if (op.settled) continue;
    return count_text(open_, "operation") + (open_ == 1 ? " is" : " are") +
           " in flight, for instance " + name(op, key);
  }
  PCCL_ASSERT(open_ == 0);
  return {};
}

bool Operations::is_in(PeerId peer, OpKey op) const {
  const auto at = table_.find(op);
  return at != table_.end() && !at->second.settled && at->second.at[rank(peer)] != At::kNothing;
}

bool Operations::awaits(PeerId peer, OpKey op) const {
  const auto at = table_.find(op);
  return at != table_.end() && concerns(at->second, rank(peer)) &&
         at->second.at[rank(peer)] == At::kNothing;
}

std::vector<protocol::Verdict> Operations::take_settled() {
  std::vector<protocol::Verdict> settled;
  settled.swap(settled_);
  return settled;
}

std::vector<PeerId> Operations::concerned(OpKey op, const std::vector<PeerId>& survivors) const {
  const auto at = table_.find(op);
  if (at == table_.end() || !transfers(at->second.info)) return survivors;
  const PeerId receiver = at->second.info.receiver;
  const bool survives = std::find(survivors.begin(), survivors.end(), receiver) != survivors.end();
  return survives ? std::vector{receiver} : std::vector<PeerId>{};
}

bool Operations::is_transfer(OpKey op) const {
  const auto at = table_.find(op);
  return at != table_.end() && transfers(at->second.info);
}

bool Operations::keeps(OpKey op) const {
  const auto at = table_.find(op);
  return at != table_.end() && at->second.info.keep;
}

Operations Operations::reconfigured(Epoch epoch, const std::vector<PeerId>& members,
                                    RankNames names) const {
  PCCL_ASSERT(epoch > epoch_);
  Operations next(epoch, members, std::move(names));
  next.begun_before_ = begun_before_;
  for (const auto& [key, op] : table_) {
    if (!op.settled) {
      if (is_cut_off(op.info, members)) continue;
      for (uint32_t rank = 0; rank < members_.size(); ++rank) {
        if (op.at[rank] != At::kNothing) next.begun_before_[key].insert(members_[rank]);
      }
      continue;
    }
    Op kept;
    kept.info = op.info;
    kept.settled = true;
    kept.restored = op.restored;
    kept.at.resize(members.size());
    const auto at = next.table_.emplace(key, std::move(kept)).first;
    for (uint32_t rank = 0; rank < members.size(); ++rank) {
      if (op.at[this->rank(members[rank])] != At::kNothing) next.mark_begun(at, rank);
    }
    next.forget_if_acknowledged(at);
  }
  PCCL_ASSERT(next.open_ == 0);
  return next;
}

// ---- After a connection broke, or a restart ----

void Operations::catch_up(PeerId peer, const std::vector<protocol::Uncalled>& uncalled) {
  const uint32_t rank = this->rank(peer);
  any_source_.forget_questions(peer);
  std::set<OpKey> not_begun;
  for (const protocol::Uncalled& op : uncalled) not_begun.insert(op.op);
  for (auto at = table_.begin(); at != table_.end();) {
    const auto here = at++;
    const Op& op = here->second;
    const bool lost = op.settled && concerns(op, rank) && op.at[rank] == At::kNothing;
    if (!lost || not_begun.contains(here->first) || begun_by_[rank] >= kBegunMax) continue;
    mark_begun(here, rank);
    forget_if_acknowledged(here);
  }
}

void Operations::restore_settled(const protocol::Uncalled& op, const std::set<PeerId>& not_begun) {
  if (table_.contains(op.op) || table_.size() >= kRestoredMax) return;
  Op settled;
  settled.settled = settled.restored = true;
  settled.at.resize(members_.size());
  if (op.sender) {
    const bool known = ranks_.contains(op.sender) && ranks_.contains(op.receiver);
    if (!known || op.sender == op.receiver) return;
    settled.info.kind = protocol::OpKind::kSend;
    settled.info.root = op.sender;
    settled.info.receiver = op.receiver;
  }
  const auto at = table_.emplace(op.op, std::move(settled)).first;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    const bool begun = !not_begun.contains(members_[rank]);
    if (begun && concerns(at->second, rank)) mark_begun(at, rank);
  }
  forget_if_acknowledged(at);
}

// ---- Text formatting ----

std::string Operations::name(const Op& op, OpKey key) const {
  return text(op.info, who()) + " " + text(op.info, key) + " in epoch " + text(epoch_);
}

protocol::PeerText Operations::who() const {
  return [this](PeerId peer) {
    const auto at = ranks_.find(peer);
    return at == ranks_.end() ? "peer " + text(peer) : "rank " + std::to_string(at->second);
  };
}

std::string Operations::mismatch(const Op& op, OpKey key) const {
  Descriptions called(members_.size());
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (op.at[rank] == At::kNothing) continue;
    const auto other = op.otherwise.find(rank);
    called[rank] = other == op.otherwise.end() ? &op.info : &other->second;
  }
  return "ranks disagree on " + text(op.info, key) + " in epoch " + text(epoch_) + ": " +
         mismatch_text(called, names_, who());
}

// ---- Invariants ----

bool Operations::is_of(Epoch epoch, const std::vector<protocol::Member>& members) const {
  const auto same = [](PeerId peer, const protocol::Member& member) { return peer == member.peer; };
  return epoch_ == epoch &&
         std::equal(members_.begin(), members_.end(), members.begin(), members.end(), same);
}

void Operations::check() const {
  size_t open = 0, sends = 0;
  any_source_.check();
  for (const auto& [key, op] : table_) {
    if (!op.settled) ++open;
    PCCL_ASSERT(any_source_.knows(key) == awaits_receiver(key, op));
    if (any_source_.knows(key)) ++sends;
    check(key, op);
  }
  PCCL_ASSERT(open == open_ && sends == any_source_.size());
  check_ranks();
  for (const auto& [key, members] : begun_before_) {
    const auto at = table_.find(key);
    PCCL_ASSERT(!members.empty() && (at == table_.end() || !at->second.settled));
  }
  PCCL_ASSERT(settled_.empty() && proposals_.empty() && misfits_.empty());
}

void Operations::check(OpKey key, const Op& op) const {
  PCCL_ASSERT(op.at.size() == members_.size());
  uint32_t begun = 0, done = 0;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (op.at[rank] == At::kNothing) continue;
    if (concerns(op, rank)) ++begun;
    if (op.at[rank] == At::kDone) ++done;
  }
  PCCL_ASSERT(begun == op.begun && done == op.done);
  PCCL_ASSERT(op.settled ? !acknowledged(op) : !finished(op) && !missed_by_left(op));
  PCCL_ASSERT(op.settled || !missed_by_closed(op));
  PCCL_ASSERT(op.settled || !op.restored);
  for (const auto& [rank, info] : op.otherwise) {
    PCCL_ASSERT(op.at[rank] != At::kNothing && info != op.info);
  }
  if (!op.proposal) return;
  PCCL_ASSERT(op.proposal->op == key && op.proposal->epoch == epoch_ && op.done > 0);
}

void Operations::check_ranks() const {
  std::vector<size_t> carried(members_.size());
  for (const auto& [key, op] : table_) {
    if (op.settled) continue;
    carried[op.first] += carried_bytes(op.info);
    for (const auto& [rank, info] : op.otherwise) carried[rank] += carried_bytes(info);
  }
  PCCL_ASSERT(carried == carried_by_);
  PCCL_ASSERT(ranks_.size() == members_.size() && begun_by_.size() == members_.size());
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    PCCL_ASSERT(ranks_.at(members_[rank]) == rank);
    const auto begun =
        static_cast<size_t>(std::count_if(table_.begin(), table_.end(), [rank](const auto& at) {
          return at.second.at[rank] != At::kNothing && !at.second.restored;
        }));
    PCCL_ASSERT(begun == begun_by_[rank] && begun <= kBegunMax);
  }
}

}  // namespace pccl::master
