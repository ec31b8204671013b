//   a vote      event                                            to
//   (none)      cast, its number is open or new                  counted
//   (none)      cast, its number was settled before              answered
//   (none)      cast in a broken group, not update_topology      refused, or answered as another
//                                                                voter was before the group broke
//   (none)      cast again, answered meanwhile                   nothing: the answer is on its way
//   counted     settle: all have voted, kinds differ, given up   answered
//   counted     the voter is lost, or a new epoch begins         (none)

#include "master/group/ballot.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::master {

using protocol::Answer;
using protocol::JointKind;
using protocol::Vote;

Ballot::Ballot(std::vector<PeerId> voters, RankNames names)
    : order_(std::move(voters)), names_(std::move(names)) {
  for (const PeerId voter : order_) voters_[voter] = {};
  PCCL_ASSERT(voters_.size() == order_.size());
}

void Ballot::break_up(std::optional<uint32_t> continued) {
  if (!broken_) settled_.clear();
  broken_ = true;
  continued_ = continued;
}

void Ballot::lose(PeerId voter) {
  if (has_voted(voter)) --open_;
  voters_.erase(voter);
  PCCL_ASSERT(open_ <= voters_.size());
}

void Ballot::restore(PeerId peer, uint32_t answered, const std::optional<Answer>& last) {
  Voter& voter = voters_.at(peer);
  PCCL_ASSERT(open_ == 0 && !voter.last_answer);
  voter.next = answered;
  restored_ = true;
  if (!last || last->number >= answered) return;
  voter.last_answer = last;
  settled_.try_emplace(last->number, *last);
}

void Ballot::reconfigure(std::vector<PeerId> voters, RankNames names) {
  order_ = std::move(voters);
  names_ = std::move(names);
  PCCL_ASSERT(order_.size() == voters_.size());
  for (auto& [peer, voter] : voters_) voter.vote.reset();
  open_ = 0;
}

std::vector<std::pair<uint32_t, const Ballot::Voter*>> Ballot::by_rank() const {
  std::vector<std::pair<uint32_t, const Voter*>> left;
  for (uint32_t rank = 0; rank < order_.size(); ++rank) {
    const auto at = voters_.find(order_[rank]);
    if (at != voters_.end()) left.emplace_back(rank, &at->second);
  }
  PCCL_ASSERT(left.size() == voters_.size());
  return left;
}

Status Ballot::check(const Voter& voter, const Vote& vote) const {
  if (vote.budget_ms > protocol::kProbeBudgetMax)
    return violation("Vote with a budget of " + std::to_string(vote.budget_ms) + " ms");
  if (vote.max_bytes > 0 && vote.max_bytes < protocol::kProbesBytesMin)
    return violation("Vote with max_bytes of " + std::to_string(vote.max_bytes));
  // A recovered member may have reported any number, and the next number must exist.
  if (vote.number == UINT32_MAX) return violation("Vote with the last number");
  if (vote.number == voter.next && !voter.vote) return {};
  return {Code::kProtocol,
          "Vote " + std::to_string(vote.number) + " while number " + std::to_string(voter.next) +
              (voter.vote ? " is open" : " is next"),
          {}};
}

Result<Ballot::Cast> Ballot::cast(PeerId peer, const Vote& vote) {
  const auto at = voters_.find(peer);
  PCCL_ASSERT(at != voters_.end());
  Voter& voter = at->second;
  const bool counted = voter.vote && voter.vote->number == vote.number;
  const bool answered = voter.last_answer && voter.last_answer->number == vote.number;
  if (counted) voter.vote->background = vote.background;
  if (counted || answered) return Cast::kRepeated;
  const Status status = check(voter, vote);
  if (!status.ok()) return status;
  const Answer* const settled = broken_ ? brought_back(vote) : settled_without(vote.number);
  const bool continues = continued_ == vote.number && vote.kind == JointKind::kSyncSharedState;
  if (settled == nullptr && broken_ && vote.kind != JointKind::kUpdateTopology && !continues)
    return Cast::kRefused;
  if (settled != nullptr) {
    answer_voter(voter, vote, *settled);
    return Cast::kAnswered;
  }
  const auto open = kind();
  voter.vote = vote;
  ++open_;
  PCCL_ASSERT(open_ <= voters_.size());
  return open && *open != vote.kind ? Cast::kDiffers : Cast::kCounted;
}

// Returns the answer to `number` if a voter is already past it; null otherwise. After a restart the
// answer to a later number may stand in, because only the last of several answers may be known: the
// earlier ones were equal failures, since one voter was missing in each.
const Answer* Ballot::settled_without(uint32_t number) const {
  const auto settled = settled_.lower_bound(number);
  if (settled == settled_.end()) return nullptr;
  const bool past = std::any_of(voters_.begin(), voters_.end(),
                                [&](const auto& at) { return at.second.next > number; });
  return past ? &settled->second : nullptr;
}

// Another voter may have got an answer to this call before the group was broken. Until then, the
// same call had the same number at all voters, so the number finds it. Returns that answer; null if
// there is none, and for an update_topology, which waits for all voters in any case.
const Answer* Ballot::brought_back(const Vote& vote) const {
  const auto settled = settled_.find(vote.number);
  const bool same = settled != settled_.end() && settled->second.kind == vote.kind;
  return same && vote.kind != JointKind::kUpdateTopology ? &settled->second : nullptr;
}

Answer Ballot::refuse(PeerId peer, const Vote& vote, const Status& why) {
  PCCL_ASSERT(broken_ && vote.kind != JointKind::kUpdateTopology);
  PCCL_ASSERT(!has_voted(peer) && voters_.at(peer).next == vote.number);
  Answer answer;
  answer.code = why.code;
  answer.text = why.message;
  return answer_voter(voters_.at(peer), vote, std::move(answer));
}

Answer& Ballot::answer_voter(Voter& voter, const Vote& vote, Answer answer) {
  PCCL_ASSERT(!voter.vote && voter.next == vote.number);
  answer.number = vote.number;
  answer.kind = vote.kind;
  voter.next = vote.number + 1;
  voter.last_answer = std::move(answer);
  return *voter.last_answer;
}

std::optional<JointKind> Ballot::kind() const {
  if (open_ == 0) return std::nullopt;  // the usual case while there are operations
  for (const PeerId peer : order_) {
    const auto at = voters_.find(peer);
    if (at != voters_.end() && at->second.vote) return at->second.vote->kind;
  }
  PCCL_ASSERT(open_ == 0);
  return std::nullopt;
}

bool Ballot::is_complete() const { return !voters_.empty() && open_ == voters_.size(); }

bool Ballot::is_open(PeerId peer, uint32_t number) const {
  const Voter& voter = voters_.at(peer);
  return voter.vote && voter.vote->number == number;
}

bool Ballot::is_open(PeerId peer, JointKind kind) const {
  const Voter& voter = voters_.at(peer);
  return voter.vote && voter.vote->kind == kind;
}

const Vote& Ballot::vote(PeerId voter) const {
  PCCL_ASSERT(has_voted(voter));
  return *voters_.at(voter).vote;
}

std::vector<uint32_t> Ballot::missing() const {
  std::vector<uint32_t> ranks;
  for (const auto& [rank, voter] : by_rank()) {
    if (!voter->vote) ranks.push_back(rank);
  }
  return ranks;
}

std::string Ballot::mismatch() const {
  std::map<JointKind, std::vector<uint32_t>> kinds;
  for (const auto& [rank, voter] : by_rank()) {
    if (voter->vote) kinds[voter->vote->kind].push_back(rank);
  }
  PCCL_ASSERT(kinds.size() > 1);
  std::vector<std::pair<std::vector<uint32_t>, JointKind>> rarest;
  rarest.reserve(kinds.size());
  for (auto& [kind, ranks] : kinds) rarest.emplace_back(std::move(ranks), kind);
  std::stable_sort(rarest.begin(), rarest.end(), [](const auto& a, const auto& b) {
    return a.first.size() != b.first.size() ? a.first.size() < b.first.size() : a.first < b.first;
  });
  std::string out = "ranks made different joint calls: ";
  for (const auto& [ranks, kind] : rarest) {
    if (&ranks != &rarest.front().first) out += "; ";
    out += ranks_text(ranks, names_) + " called " + text(kind);
  }
  return out + ". All ranks must make the same joint calls in the same order";
}

Ruling Ballot::rule_on_kinds(const std::vector<PeerId>& newcomers) const {
  Ruling ruling;
  std::optional<JointKind> right, any;
  bool differ = false, others_differ = false, all_others = true;
  for (const auto& [peer, voter] : voters_) {
    const bool other = std::find(newcomers.begin(), newcomers.end(), peer) == newcomers.end();
    if (!voter.vote) {
      all_others = all_others && !other;
      continue;
    }
    differ = differ || (any && *any != voter.vote->kind);
    any = voter.vote->kind;
    others_differ = others_differ || (other && right && *right != voter.vote->kind);
    if (other) right = voter.vote->kind;
  }
  if (!differ) return ruling;
  if (others_differ || (all_others && !right)) {
    ruling.answer.emplace();
    ruling.answer->code = Code::kMismatch;
    ruling.answer->text = mismatch();
  }
  if (ruling.answer || !all_others) return ruling;
  PCCL_ASSERT(right.has_value());
  for (const PeerId peer : newcomers) {
    const auto at = voters_.find(peer);
    if (at == voters_.end() || !at->second.vote) continue;
    if (at->second.vote->kind != *right) ruling.misfits.push_back({peer, mismatch()});
  }
  return ruling;
}

bool Ballot::has_voted(PeerId peer) const {
  const auto at = voters_.find(peer);
  return at != voters_.end() && at->second.vote;
}

protocol::Answer Ballot::timeout(std::string text) {
  protocol::Answer answer;
  answer.code = Code::kOperationTimeout;
  answer.text = "timed out: " + (text.empty() ? "its answer was about to come" : std::move(text));
  return answer;
}

Ballot::Answers Ballot::settle(const Answer& answer) {
  Answers answers = settle_if(answer, [](JointKind) { return true; });
  PCCL_ASSERT(open_ == 0);
  return answers;
}

Ballot::Answers Ballot::settle_others(JointKind kind, const Answer& answer) {
  Answers answers = settle_if(answer, [kind](JointKind other) { return other != kind; });
  PCCL_ASSERT(this->kind().value_or(kind) == kind);
  return answers;
}

template <typename Which>
Ballot::Answers Ballot::settle_if(const Answer& answer, Which which) {
  Answers answers;
  std::optional<uint32_t> number;
  for (const PeerId peer : order_) {
    const auto at = voters_.find(peer);
    if (at == voters_.end() || !at->second.vote || !which(at->second.vote->kind)) continue;
    Voter& voter = at->second;
    const Vote vote = std::move(*voter.vote);
    voter.vote.reset();
    PCCL_ASSERT(open_ > 0);
    --open_;
    number = vote.number;
    answers.emplace_back(peer, answer_voter(voter, vote, answer));
  }
  if (!number) return answers;
  if (broken_) {
    if (continued_ != number) return answers;
    continued_.reset();
    Answer& settled = settled_[*number] = answer;
    settled.kind = JointKind::kSyncSharedState;
    return answers;
  }
  if (answers.size() < voters_.size()) settled_[*number] = answer;
  uint32_t all_past = *number + 1;
  for (const auto& [peer, voter] : voters_) all_past = std::min(all_past, voter.next);
  settled_.erase(settled_.begin(), settled_.lower_bound(all_past));
  return answers;
}

const Answer* Ballot::last_answer(PeerId peer) const {
  const auto& answer = voters_.at(peer).last_answer;
  return answer ? &*answer : nullptr;
}

bool Ballot::is_voter(PeerId peer, uint32_t rank) const {
  return rank < order_.size() && order_[rank] == peer && voters_.contains(peer);
}

void Ballot::check() const {
  size_t open = 0;
  std::optional<uint32_t> number;
  for (const auto& [peer, voter] : voters_) {
    PCCL_ASSERT(!voter.last_answer || voter.last_answer->number < voter.next);
    if (!voter.vote) continue;
    ++open;
    PCCL_ASSERT(voter.vote->number == voter.next);
    PCCL_ASSERT(broken_ || restored_ || number.value_or(voter.next) == voter.next);
    number = voter.next;
  }
  PCCL_ASSERT(open == open_);
  PCCL_ASSERT(voters_.size() <= order_.size());
  if (broken_ || restored_) return;
  uint32_t past = 0;
  for (const auto& [peer, voter] : voters_) past = std::max(past, voter.next);
  for (const auto& [peer, voter] : voters_) {
    for (uint32_t behind = voter.next; behind < past; ++behind)
      PCCL_ASSERT(settled_.contains(behind));
  }
}

}  // namespace pccl::master
