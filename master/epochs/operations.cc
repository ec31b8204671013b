//   an operation    event                                    to
//   (unknown)       Begin                                    open
//   open            Begin of others, the same description    open
//   open            Begin that differs                       settled: aborted, kMismatch
//   open            Begin that differs, only of newcomers    stays until all others have begun it:
//                                                            then the newcomers are misfits
//   open            Done by all                              settled: committed
//   open, a send    Done by its receiver                     settled: committed
//   open            AbortRequest                             settled: aborted, its code
//   open            a cycle of waits                         settled: aborted, kMismatch
//   open            update_topology, begun by some only      settled: aborted, kMembershipChanged
//   open            a member that is not done has left       settled: aborted, kPeerLost
//   open            any abort, members may have committed    stays: AbortProposal to all
//   proposed        two members are not done; or all have    settled: aborted
//                   answered, and they agree
//   proposed        all have answered, and contradict        stays: members are removed
//   settled         begun by all                             forgotten
//   any             Done, AbortRequest that crossed          stays
//                   the verdict

#include "master/epochs/operations.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "master/context.h"
#include "master/epochs/mismatch_text.h"
#include "master/epochs/operation_waits.h"
#include "master/epochs/proposed_abort.h"

namespace pccl::master {
namespace {

// Maximum number of operations that the reports after a restart of the master can add. It leaves
// room for new ones.
constexpr size_t kRestoredMax = protocol::kOpsKnownMax / 2;

// At most the greatest number that a verdict can have: an hour.
uint32_t microseconds(Duration duration) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  const auto count = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(count, 0, kMost));
}

// Whether this is a send, and its sender or its receiver is lost. Such a send does not begin again.
bool is_cut_off(const protocol::OpInfo& info, const std::vector<PeerId>& members) {
  if (!OpTable::transfers(info)) return false;
  const auto stays = [&members](PeerId peer) {
    return std::find(members.begin(), members.end(), peer) != members.end();
  };
  return !stays(info.root) || !stays(info.receiver);
}

}  // namespace

Operations::Operations(Epoch epoch, std::vector<PeerId> members, RankNames names, bool wan)
    : begun_by_(members.size()), open_by_(members.size()), carried_by_(members.size()) {
  for (uint32_t rank = 0; rank < members.size(); ++rank) table_.ranks[members[rank]] = rank;
  PCCL_ASSERT(table_.ranks.size() == members.size());
  table_.epoch = epoch;
  table_.members = std::move(members);
  table_.names = std::move(names);
  table_.wan = wan;
}

Operations::Operations(const protocol::EpochStart& start)
    : Operations(start.epoch, ids(start.members), names_of(start.members), is_wan(start)) {}

OperationWaits Operations::waits() const { return OperationWaits(table_); }

bool Operations::finished(const Op& op) const {
  if (!OpTable::transfers(op.info)) return op.done == table_.members.size();
  return op.at[table_.rank(op.info.receiver)] == At::kDone;
}

// ---- Messages of peers ----

Status Operations::check_begin(PeerId peer, OpKey op, const protocol::OpInfo& info) const {
  const uint32_t rank = table_.rank(peer);
  if (info.kind == protocol::OpKind::kRecv)
    return violation("Begin of a recv: both sides say send");
  if (OpTable::transfers(info)) {
    const bool mine = table_.members[rank] == info.root || table_.members[rank] == info.receiver;
    const bool known = table_.ranks.contains(info.root) && table_.ranks.contains(info.receiver);
    if (!mine || !known || info.root == info.receiver) {
      return violation("Begin of a send that is not between this peer and another member");
    }
  }
  if (info.sends.size() != info.receives.size())
    return violation("Begin of " + text(info, op) + " with other parts to send than to receive");
  const auto at = table_.ops.find(op);
  const bool begun = at != table_.ops.end() && at->second.at[rank] != At::kNothing;
  if (begun && !at->second.restored) {
    return violation("Begin of " + text(info, op) + ", which it has begun before");
  }
  if (carried_by_[rank] + carried_bytes(info) > protocol::kCarriedBytesMax)
    return violation("more than " + std::to_string(protocol::kCarriedBytesMax) +
                     " bytes of tags, part sizes and call sites in flight");
  const auto excess = [](size_t most, const char* what) {
    return Status{Code::kKicked, "it has more than " + std::to_string(most) + what, {}};
  };
  if (open_by_[rank] >= protocol::kOpsOpenMax)
    return excess(protocol::kOpsOpenMax, " operations open, the most that one peer may have");
  if (begun_by_[rank] >= protocol::kOpsBegunMax)
    return excess(protocol::kOpsBegunMax, " operations that not all members have called");
  return {};
}

Status Operations::begin(PeerId peer, OpKey op, const protocol::OpInfo& info,
                         const std::vector<PeerId>& newcomers, Instant now) {
  const uint32_t rank = table_.rank(peer);
  const Status status = check_begin(peer, op, info);
  if (!status.ok()) return status;
  if (has_begun(peer, op)) erase(table_.ops.find(op));  // it was restored, and a report was wrong
  PCCL_ASSERT(begun_by_[rank] < protocol::kOpsBegunMax);
  const auto [at, fresh] = table_.ops.try_emplace(op);
  Op& known = at->second;
  if (fresh) {
    known.info = info;
    known.first = rank;
    carried_by_[rank] += carried_bytes(info);
    known.at.resize(table_.members.size());
    known.since = known.last_at = now;
    ++table_.open;
    PCCL_ASSERT(table_.open <= table_.ops.size());
  }
  if (!known.settled && known.info != info) {
    known.otherwise.emplace(rank, info);
    carried_by_[rank] += carried_bytes(info);
  }
  known.last = rank;
  known.before_last_at = std::exchange(known.last_at, now);
  mark_begun(at, rank);
  if (!awaits_receiver(op, known)) {
    table_.any_source.taken(op);
  } else if (!table_.any_source.knows(op)) {
    table_.any_source.begun(table_.epoch, op, known.info);
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

// If the members that are no newcomers agree, they are right, and the newcomers that differ are
// misfits. If they disagree, or the operation concerns only newcomers, it aborts. REQUIRES: some
// descriptions differ.
void Operations::judge(Ops::iterator at, const std::vector<PeerId>& newcomers) {
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
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
    if (!table_.concerns(op, rank) || table_.is_one_of(newcomers, rank)) continue;
    if (op.at[rank] == At::kNothing) {
      all_have_begun = false;
    } else {
      agree = agree && fits(rank, right);
      right.push_back(rank);
    }
  }
  const bool nobody_to_compare = all_have_begun && right.empty();
  if (!agree || nobody_to_compare) {
    return give_up(at, Code::kMismatch, mismatch(op, at->first));
  }
  if (!all_have_begun) return;
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
    const bool wrong = op.at[rank] != At::kNothing && !fits(rank, right);
    if (wrong) misfits_.push_back({table_.members[rank], mismatch(op, at->first)});
  }
}

void Operations::mark_begun(Ops::iterator at, uint32_t rank) {
  Op& op = at->second;
  PCCL_ASSERT(op.at.size() == table_.members.size() && op.at[rank] == At::kNothing);
  op.at[rank] = At::kBegun;
  if (table_.concerns(op, rank)) ++op.begun;
  if (!op.restored) ++begun_by_[rank];
  if (!op.settled) ++open_by_[rank];
}

bool Operations::awaits_receiver(OpKey key, const Op& op) const {
  return OpTable::transfers(op.info) && !op.settled &&
         op.at[table_.rank(op.info.root)] != At::kNothing && !was_begun(op.info.receiver, key);
}

Status Operations::done(PeerId peer, OpKey op) {
  const uint32_t rank = table_.rank(peer);
  const auto at = table_.ops.find(op);
  if (at == table_.ops.end()) return {};  // it crossed the verdict, and the operation is forgotten
  Op& known = at->second;
  if (known.at[rank] == At::kNothing) return violation("Done before Begin");
  if (known.at[rank] == At::kDone || known.settled) return {};
  if (known.is_bound(rank))
    return violation("Done of " + table_.name(known.info, op) +
                     ", although it has answered that it is not done");
  known.at[rank] = At::kDone;
  ++known.done;
  PCCL_ASSERT(known.done <= table_.members.size());
  if (finished(known)) settle(at, protocol::Outcome::kCommitted, Code::kOk, {});
  return {};
}

// If one of two sends that face each other times out, the other soon does, too. It is marked, so
// that its error gives the same reason.
void Operations::mark_faced(const Op& op) {
  for (auto& [key, other] : table_.ops) other.faced |= waits().faces(op, other);
}

// ---- Aborts ----

Status Operations::abort(PeerId peer, const protocol::AbortRequest& request,
                         const MissingText& missing) {
  if (request.code == Code::kOk) return violation("AbortRequest without a reason");
  const auto at = table_.ops.find(request.op);
  if (at == table_.ops.end() || at->second.settled) return {};
  Op& op = at->second;
  const uint32_t rank = table_.rank(peer);
  if (op.at[rank] == At::kNothing) return violation("AbortRequest before Begin");
  if (table_.may_be_returned(op))
    op.answers.emplace(
        rank, op.at[rank] == At::kDone ? protocol::OpState::kDone : protocol::OpState::kNotDone);
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
  if (is_done == (answer.state != protocol::OpState::kNotDone)) {
    if (at->second.answers.emplace(rank, answer.state).second) decide_proposal(at);
    return {};  // the first answer is binding
  }
  return violation("it answers that it is " + std::string(is_done ? "not done" : "done") +
                   " with " + table_.name(op.info, answer.op) + ", and has " +
                   (is_done ? "" : "not ") + "sent Done");
}

void Operations::decide_proposal(Ops::iterator at) {
  const Op& op = at->second;
  const States states = answers_to(table_, op);
  const auto liars = decide_abort(states, table_.members.size());
  if (!liars) return;
  if (liars->empty())
    return settle(at, protocol::Outcome::kAborted, op.proposal->code, op.proposal->text);
  bool all_have_left = true;
  for (const PeerId peer : *liars) {
    if (table_.left.contains(table_.rank(peer))) continue;
    liars_.push_back({peer, contradiction_text(table_, at->first, states)});
    all_have_left = false;
  }
  if (all_have_left) settle(at, protocol::Outcome::kCommitted, Code::kOk, {});  // others are done
}

// ---- How operations end ----

void Operations::settle(Ops::iterator at, protocol::Outcome outcome, Code code,
                        const std::string& text) {
  PCCL_ASSERT(!at->second.settled && table_.open > 0);
  PCCL_ASSERT((outcome == protocol::Outcome::kCommitted) == (code == Code::kOk));
  PCCL_ASSERT((code == Code::kOk) == text.empty());
  const protocol::OpInfo& info = at->second.info;
  protocol::Verdict verdict{at->first, outcome, code,
                            std::string(cut(text, protocol::kTextBytesMax))};
  if (OpTable::transfers(info)) verdict.sender = info.root, verdict.receiver = info.receiver;
  const bool all_began = at->second.begun == table_.parties(at->second);
  verdict.last = all_began ? at->second.last : table_.ranks_at(at->second, At::kNothing)[0];
  settled_.push_back(
      {std::move(verdict), all_began ? std::optional(at->second.last_at) : std::nullopt});
  endings_.push_back(OpTable::ending(at->second, code == Code::kOk));
  if (code == Code::kOk && !OpTable::transfers(info) && all_began)
    endings_.back().begins = begins_of(at->second);
  at->second.settled = true;
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank)
    open_by_[rank] -= at->second.at[rank] == At::kNothing ? 0 : 1;
  forget_descriptions(at->second);
  table_.begun_before.erase(at->first);
  table_.any_source.taken(at->first);
  --table_.open;
  if (at->second.proposal) --table_.proposed;
  forget_if_acknowledged(at);
}

void Operations::forget_if_acknowledged(Ops::iterator at) {
  PCCL_ASSERT(at->second.begun <= table_.parties(at->second));
  if (acknowledged(at->second)) erase(at);
}

bool Operations::acknowledged(const Op& op) const {
  const auto awaited = [&](uint32_t rank) {
    return op.at[rank] == At::kNothing && table_.concerns(op, rank);
  };
  const auto gone = std::count_if(table_.left.begin(), table_.left.end(), awaited);
  return op.begun + static_cast<uint32_t>(gone) == table_.parties(op);
}

void Operations::erase(Ops::iterator at) {
  PCCL_ASSERT(at != table_.ops.end() && at->second.settled);
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
    if (at->second.at[rank] == At::kNothing || at->second.restored) continue;
    PCCL_ASSERT(begun_by_[rank] > 0);
    --begun_by_[rank];
  }
  table_.ops.erase(at);
}

void Operations::forget_descriptions(Op& op) {
  const auto forget = [this](uint32_t rank, const protocol::OpInfo& info) {
    PCCL_ASSERT(carried_by_[rank] >= carried_bytes(info));
    carried_by_[rank] -= carried_bytes(info);
  };
  forget(op.first, op.info);
  for (const auto& [rank, info] : op.otherwise) forget(rank, info);
  op.info.sends = op.info.receives = {};
  op.info.site.clear();
  op.otherwise.clear();
}

// ---- Members that leave ----

void Operations::leave(PeerId peer) {
  const uint32_t rank = table_.rank(peer);
  PCCL_ASSERT(!table_.left.contains(rank));
  table_.left.insert(rank);
  table_.any_source.forget_questions(peer);
  abort_without(rank, false);
  for (auto at = table_.ops.begin(); at != table_.ops.end();) {
    const auto here = at++;
    if (here->second.settled) forget_if_acknowledged(here);
  }
  end_questions_of_last();
}

void Operations::abort_all_with(PeerId left) {
  if (needs(left)) abort_without(table_.rank(left), true);
}

void Operations::abort_without(uint32_t left, bool although_done) {
  for (auto at = table_.ops.begin(); at != table_.ops.end();) {
    const auto here = at++;
    Op& op = here->second;
    const bool is_done = op.at[left] == At::kDone;
    if (op.settled || !table_.concerns(op, left) || (is_done && !although_done)) continue;
    settle_without(here, left);
  }
}

// A rank that the operation concerns, that has left, and that is not done; nothing if there is
// none.
std::optional<uint32_t> Operations::missed_by_left(const Op& op) const {
  for (const uint32_t rank : table_.left) {
    if (table_.concerns(op, rank) && op.at[rank] != At::kDone) return rank;
  }
  return std::nullopt;
}

void Operations::close_posting(PeerId voter) {
  const uint32_t closed = table_.rank(voter);
  if (!closed_.insert(closed).second) return;
  for (auto at = table_.ops.begin(); at != table_.ops.end();) {
    const auto here = at++;
    const Op& op = here->second;
    const bool missed = table_.concerns(op, closed) && op.at[closed] == At::kNothing;
    if (!op.settled && missed) settle_closed(here, {closed});
  }
  end_questions_of_last();
}

std::optional<uint32_t> Operations::missed_by_closed(const Op& op) const {
  for (const uint32_t rank : closed_) {
    if (table_.concerns(op, rank) && op.at[rank] == At::kNothing) return rank;
  }
  return std::nullopt;
}

void Operations::settle_without(Ops::iterator at, uint32_t left) {
  give_up(at, Code::kPeerLost, without_text(at, left));
}

std::string Operations::without_text(Ops::const_iterator at, uint32_t left) const {
  return table_.name(at->second.info, at->first) +
         " cannot complete: " + ranks_text({left}, table_.names) +
         " has left the group (destroy_process_group). update_topology continues without it";
}

bool Operations::needs(PeerId left) const {
  const auto known = table_.ranks.find(left);
  if (known == table_.ranks.end() || !table_.left.contains(known->second)) return false;
  return std::any_of(table_.ops.begin(), table_.ops.end(), [&](const auto& entry) {
    return !entry.second.settled && table_.concerns(entry.second, known->second);
  });
}

// A member that has left, or whose posting is closed, sends nothing before the update_topology. So
// if only one member could send, nobody can send to it.
void Operations::end_questions_of_last() {
  std::set<uint32_t> silent = table_.left;
  silent.insert(closed_.begin(), closed_.end());
  if (silent.size() + 1 < table_.members.size()) return;
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
    const bool hears_nobody = silent.size() - silent.count(rank) + 1 == table_.members.size();
    if (hears_nobody && !table_.left.contains(rank))
      table_.any_source.end_questions(table_.epoch, table_.members[rank]);
  }
}

void Operations::end_cycle(const std::vector<OpKey>& cycle, const std::string& why) {
  for (const OpKey key : cycle) {
    const auto at = table_.ops.find(key);
    if (at == table_.ops.end() || at->second.settled) continue;
    std::string text = table_.name(at->second.info, key);
    text += " cannot complete: ";
    give_up(at, Code::kMismatch, text += why);
  }
}

void Operations::end_all(const std::string& why) {
  for (auto at = table_.ops.begin(); at != table_.ops.end();) {
    const auto here = at++;
    std::string text = table_.name(here->second.info, here->first) + " was ended by ";
    if (!here->second.settled) give_up(here, Code::kMembershipChanged, text += why);
  }
}

void Operations::drain() {
  for (auto at = table_.ops.begin(); at != table_.ops.end();) {
    const auto here = at++;
    const Op& op = here->second;
    const auto idle = table_.ranks_at(op, At::kNothing);
    if (!op.settled && !idle.empty()) settle_closed(here, idle);
  }
}

void Operations::settle_closed(Ops::iterator at, const std::vector<uint32_t>& idle) {
  give_up(at, Code::kMembershipChanged,
          table_.name(at->second.info, at->first) + " was ended by update_topology: " +
              ranks_text(idle, table_.names) + " had not called it before; call it again");
}

std::vector<protocol::Verdict> Operations::take_settled(Instant now) {
  std::vector<protocol::Verdict> settled;
  settled.reserve(settled_.size());
  for (auto& [verdict, last_at] : std::exchange(settled_, {})) {
    if (last_at) verdict.last_us = microseconds(now - *last_at);
    settled.push_back(std::move(verdict));
  }
  return settled;
}

Latecomers::Begins Operations::begins_of(const Op& op) const {
  return {table_.members[op.last], op.since, op.before_last_at, op.last_at};
}

std::vector<PeerId> Operations::concerned(OpKey op, const std::vector<PeerId>& survivors) const {
  const auto at = table_.ops.find(op);
  if (at == table_.ops.end() || !OpTable::transfers(at->second.info)) return survivors;
  const PeerId receiver = at->second.info.receiver;
  const bool survives = std::find(survivors.begin(), survivors.end(), receiver) != survivors.end();
  return survives ? std::vector{receiver} : std::vector<PeerId>{};
}

std::vector<Operations::Ending> Operations::endings_at(const protocol::EpochEnd& end) const {
  std::vector<Ending> all;
  const std::set<OpKey> commits(end.committed.begin(), end.committed.end());
  for (const auto& [key, op] : table_.ops) {
    if (op.settled) continue;
    const bool committed = commits.contains(key);
    const bool continues = end.continuation == protocol::Continuation::kEverything ||
                           (end.continuation == protocol::Continuation::kKept && op.info.keep);
    if (committed || !continues) all.push_back(OpTable::ending(op, committed));
  }
  return all;
}

Operations Operations::reconfigured(const protocol::EpochStart& start) const {
  return reconfigured(start.epoch, ids(start.members), names_of(start.members), is_wan(start));
}

Operations Operations::reconfigured(Epoch epoch, const std::vector<PeerId>& members,
                                    RankNames names, bool wan) const {
  PCCL_ASSERT(epoch > table_.epoch);
  Operations next(epoch, members, std::move(names), wan);
  next.table_.begun_before = table_.begun_before;
  for (const auto& [key, op] : table_.ops) {
    if (!op.settled) {
      if (is_cut_off(op.info, members)) continue;
      for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
        if (op.at[rank] != At::kNothing) next.table_.begun_before[key].insert(table_.members[rank]);
      }
      continue;
    }
    Op kept;
    kept.info = op.info;
    kept.settled = true;
    kept.restored = op.restored;
    kept.at.resize(members.size());
    const auto at = next.table_.ops.emplace(key, std::move(kept)).first;
    for (uint32_t rank = 0; rank < members.size(); ++rank) {
      if (op.at[table_.rank(members[rank])] != At::kNothing) next.mark_begun(at, rank);
    }
    next.forget_if_acknowledged(at);
  }
  PCCL_ASSERT(next.table_.open == 0);
  return next;
}

// ---- State reports ----

Status Operations::check_report(const protocol::OpReport& report) const {
  const OpTable::Op* const op = table_.find(report.op);
  if (op == nullptr) return {};  // it does not count
  const protocol::OpInfo& info = op->info;
  if (report.state == protocol::OpState::kReturned && !table_.may_be_returned(*op)) {
    return violation("it reports that it has returned " + table_.name(info, report.op) +
                     " before its verdict, which it cannot");
  }
  const uint64_t first = info.keep ? info.start : 0, last = info.keep ? info.count : 0;
  if (op->settled || (first <= report.finished && report.finished <= last)) return {};
  return violation("it reports " + std::to_string(report.finished) + " finished elements of " +
                   table_.name(info, report.op) + ", where " + std::to_string(first) + " to " +
                   std::to_string(last) + " are possible");
}

std::string Operations::why_contradicting(OpKey op, const States& states) const {
  return contradiction_text(table_, op, states);
}

// ---- After a connection broke, or a restart ----

void Operations::catch_up(PeerId peer, const std::vector<protocol::Uncalled>& uncalled) {
  const uint32_t rank = table_.rank(peer);
  table_.any_source.forget_questions(peer);
  std::set<OpKey> not_begun;
  for (const protocol::Uncalled& op : uncalled) not_begun.insert(op.op);
  for (auto at = table_.ops.begin(); at != table_.ops.end();) {
    const auto here = at++;
    const Op& op = here->second;
    const bool lost = op.settled && table_.concerns(op, rank) && op.at[rank] == At::kNothing;
    if (!lost || not_begun.contains(here->first) || begun_by_[rank] >= protocol::kOpsBegunMax)
      continue;
    mark_begun(here, rank);
    forget_if_acknowledged(here);
  }
}

void Operations::restore_settled(const protocol::Uncalled& op, const std::set<PeerId>& not_begun) {
  if (table_.ops.contains(op.op) || table_.ops.size() >= kRestoredMax) return;
  Op settled;
  settled.settled = settled.restored = true;
  settled.at.resize(table_.members.size());
  if (op.sender) {
    const bool known = table_.ranks.contains(op.sender) && table_.ranks.contains(op.receiver);
    if (!known || op.sender == op.receiver) return;
    settled.info.kind = protocol::OpKind::kSend;
    settled.info.root = op.sender;
    settled.info.receiver = op.receiver;
  }
  const auto at = table_.ops.emplace(op.op, std::move(settled)).first;
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
    const bool begun = !not_begun.contains(table_.members[rank]);
    if (begun && table_.concerns(at->second, rank)) mark_begun(at, rank);
  }
  forget_if_acknowledged(at);
}

std::string Operations::mismatch(const Op& op, OpKey key) const {
  Descriptions called(table_.members.size());
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
    if (op.at[rank] == At::kNothing) continue;
    const auto other = op.otherwise.find(rank);
    called[rank] = other == op.otherwise.end() ? &op.info : &other->second;
  }
  return "ranks disagree on " + text(op.info, key) + " in epoch " + text(table_.epoch) + ": " +
         mismatch_text(called, table_.names, table_.who());
}

// ---- Invariants ----

bool Operations::is_of(Epoch epoch, const std::vector<protocol::Member>& members) const {
  const auto same = [](PeerId peer, const protocol::Member& member) { return peer == member.peer; };
  return table_.epoch == epoch && std::equal(table_.members.begin(), table_.members.end(),
                                             members.begin(), members.end(), same);
}

void Operations::check() const {
  size_t open = 0, sends = 0, proposed = 0;
  table_.any_source.check();
  for (const auto& [key, op] : table_.ops) {
    if (!op.settled) ++open;
    if (!op.settled && op.proposal) ++proposed;
    PCCL_ASSERT(table_.any_source.knows(key) == awaits_receiver(key, op));
    if (table_.any_source.knows(key)) ++sends;
    check(key, op);
  }
  PCCL_ASSERT(open == table_.open && proposed == table_.proposed);
  PCCL_ASSERT(sends == table_.any_source.size());
  check_ranks();
  for (const auto& [key, members] : table_.begun_before) {
    const auto at = table_.ops.find(key);
    PCCL_ASSERT(!members.empty() && (at == table_.ops.end() || !at->second.settled));
  }
  PCCL_ASSERT(settled_.empty() && proposals_.empty() && misfits_.empty() && liars_.empty());
}

void Operations::check(OpKey key, const Op& op) const {
  PCCL_ASSERT(op.at.size() == table_.members.size());
  uint32_t begun = 0, done = 0;
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
    if (op.at[rank] == At::kNothing) continue;
    if (table_.concerns(op, rank)) ++begun;
    if (op.at[rank] == At::kDone) ++done;
  }
  PCCL_ASSERT(begun == op.begun && done == op.done);
  PCCL_ASSERT(op.settled ? !acknowledged(op) : !finished(op));
  PCCL_ASSERT(op.settled || op.proposal || (!missed_by_left(op) && !missed_by_closed(op)));
  PCCL_ASSERT(op.settled || !op.restored);
  for (const auto& [rank, info] : op.otherwise) {
    PCCL_ASSERT(op.at[rank] != At::kNothing && info != op.info);
  }
  PCCL_ASSERT(op.proposal || op.answers.empty());
  if (!op.proposal) return;
  PCCL_ASSERT(op.proposal->op == key && op.proposal->epoch == table_.epoch);
  PCCL_ASSERT(op.settled || table_.may_be_returned(op));
  for (const auto& [rank, answer] : op.answers)
    PCCL_ASSERT((answer != protocol::OpState::kNotDone) == (op.at[rank] == At::kDone));
}

void Operations::check_ranks() const {
  std::vector<size_t> carried(table_.members.size());
  for (const auto& [key, op] : table_.ops) {
    if (op.settled) continue;
    carried[op.first] += carried_bytes(op.info);
    for (const auto& [rank, info] : op.otherwise) carried[rank] += carried_bytes(info);
  }
  PCCL_ASSERT(carried == carried_by_);
  PCCL_ASSERT(table_.ranks.size() == table_.members.size() &&
              begun_by_.size() == table_.members.size() &&
              open_by_.size() == table_.members.size());
  for (uint32_t rank = 0; rank < table_.members.size(); ++rank) {
    PCCL_ASSERT(table_.ranks.at(table_.members[rank]) == rank);
    const auto begun = static_cast<size_t>(
        std::count_if(table_.ops.begin(), table_.ops.end(), [rank](const auto& at) {
          return at.second.at[rank] != At::kNothing && !at.second.restored;
        }));
    const auto open = static_cast<size_t>(
        std::count_if(table_.ops.begin(), table_.ops.end(), [rank](const auto& at) {
          return at.second.at[rank] != At::kNothing && !at.second.settled;
        }));
    PCCL_ASSERT(open == open_by_[rank] && open <= protocol::kOpsOpenMax);
    PCCL_ASSERT(begun == begun_by_[rank] && begun <= protocol::kOpsBegunMax);
  }
}

}  // namespace pccl::master
