#include "master/epochs/verdict.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::master {

using protocol::OpState;
using protocol::Outcome;

namespace {

// They keep one Verdicts message far below kMessageBytesMax bytes, and its verdicts within
// kOpsOpenMax.
constexpr size_t kVerdictBytes = 96;  // a generous estimate, without the text
constexpr size_t kVerdictsBytesMax = protocol::kMessageBytesMax / 8;
static_assert(kVerdictsBytesMax / kVerdictBytes <= protocol::kOpsOpenMax);

}  // namespace

Outcome decide(std::span<const OpState> survivors) {
  PCCL_ASSERT(!survivors.empty());
  const auto not_done = std::find(survivors.begin(), survivors.end(), OpState::kNotDone);
  return not_done == survivors.end() ? Outcome::kCommitted : Outcome::kAborted;
}

std::vector<PeerId> contradicting(const States& survivors) {
  std::vector<PeerId> returned, not_done;
  for (const auto& [peer, state] : survivors) {
    if (state == OpState::kReturned) returned.push_back(peer);
    if (state == OpState::kNotDone) not_done.push_back(peer);
  }
  if (returned.empty() || not_done.empty()) return {};
  if (returned.size() > 1) return not_done;
  if (not_done.size() > 1) return returned;
  return {returned[0], not_done[0]};
}

std::map<OpKey, States> states_of(const std::map<PeerId, protocol::StateReport>& survivors,
                                  const std::function<std::vector<PeerId>(OpKey)>& concerned) {
  std::map<OpKey, States> reported;
  for (const auto& [survivor, report] : survivors) {
    for (const protocol::OpReport& op : report.ops) reported[op.op].emplace(survivor, op.state);
  }
  std::map<OpKey, States> states;
  for (const auto& [op, by] : reported) {
    States& counted = states[op];
    for (const PeerId peer : concerned(op)) {
      const auto at = by.find(peer);
      counted[peer] = at == by.end() ? OpState::kNotDone : at->second;
    }
  }
  return states;
}

std::vector<OpKey> decide(const std::map<OpKey, States>& reported) {
  std::vector<OpKey> committed;
  for (const auto& [op, by] : reported) {
    std::vector<OpState> states;
    for (const auto& [peer, state] : by) states.push_back(state);
    if (!states.empty() && decide(states) == Outcome::kCommitted) committed.push_back(op);
  }
  return committed;
}

std::vector<protocol::Kept> decide_kept(const std::map<PeerId, protocol::StateReport>& survivors,
                                        const std::vector<OpKey>& committed,
                                        const std::function<bool(OpKey)>& keeps) {
  struct Finished {
    size_t reports = 0;
    uint64_t by_all = UINT64_MAX;
  };
  std::map<OpKey, Finished> reported;
  for (const auto& [survivor, report] : survivors) {
    for (const protocol::OpReport& op : report.ops) {
      if (!keeps(op.op)) continue;
      Finished& finished = reported[op.op];
      ++finished.reports;
      finished.by_all = std::min(finished.by_all, op.finished);
    }
  }
  std::vector<protocol::Kept> kept;
  for (const auto& [op, finished] : reported) {
    const bool commits = std::find(committed.begin(), committed.end(), op) != committed.end();
    if (!commits && finished.reports == survivors.size()) kept.push_back({op, finished.by_all});
  }
  return kept;
}

VerdictLog::VerdictLog(const std::vector<PeerId>& members) {
  for (const PeerId member : members) seen_[member] = 0;
}

VerdictLog::VerdictLog(const std::vector<PeerId>& members, uint64_t first,
                       const std::vector<protocol::Verdict>& verdicts)
    : first_(first) {
  for (const PeerId member : members) seen_[member] = first;
  PCCL_ASSERT(seen_.size() == members.size() && first <= kVerdictIndexMax);
  append(verdicts);
}

void VerdictLog::append(std::vector<protocol::Verdict> verdicts) {
  for (protocol::Verdict& verdict : verdicts) {
    if (text_bytes_ + verdict.text.size() > protocol::kVerdictTextBytesMax) verdict.text.clear();
    text_bytes_ += verdict.text.size();
    index_[verdict.op] = next_index();
    kept_.push_back(std::move(verdict));
  }
}

bool VerdictLog::acknowledge(PeerId peer, uint64_t index) {
  if (index > next_index()) return false;
  const auto at = seen_.find(peer);
  if (at == seen_.end() || index <= at->second) return true;
  PCCL_ASSERT(at->second >= first_);
  const bool was_last = at->second == first_;
  at->second = index;
  if (was_last) trim();
  return true;
}

void VerdictLog::lose(PeerId peer) {
  seen_.erase(peer);
  if (!seen_.empty()) trim();
}

void VerdictLog::trim() {
  uint64_t stable = next_index();
  for (const auto& [peer, seen] : seen_) stable = std::min(stable, seen);
  PCCL_ASSERT(stable >= first_);
  for (; first_ < stable; ++first_) {
    const auto at = index_.find(kept_.front().op);
    if (at != index_.end() && at->second == first_) index_.erase(at);
    PCCL_ASSERT(text_bytes_ >= kept_.front().text.size());
    text_bytes_ -= kept_.front().text.size();
    kept_.pop_front();
  }
}

std::optional<std::vector<protocol::Verdicts>> VerdictLog::since(Epoch epoch,
                                                                 uint64_t index) const {
  if (index < first_ || index > next_index()) return std::nullopt;
  std::vector<protocol::Verdicts> messages;
  size_t bytes = kVerdictsBytesMax;
  for (; index < next_index(); ++index) {
    const protocol::Verdict& verdict = kept_[index - first_];
    const size_t more = kVerdictBytes + verdict.text.size();
    if (bytes + more > kVerdictsBytesMax) {
      messages.push_back({epoch, index, {}});
      bytes = 0;
    }
    bytes += more;
    messages.back().verdicts.push_back(verdict);
  }
  return messages;
}

void VerdictLog::check() const {
  uint64_t least = next_index();
  for (const auto& [peer, seen] : seen_) {
    PCCL_ASSERT(seen <= next_index());
    least = std::min(least, seen);
  }
  PCCL_ASSERT(seen_.empty() || least == first_);
  size_t text_bytes = 0;
  for (const protocol::Verdict& verdict : kept_) {
    text_bytes += verdict.text.size();
    PCCL_ASSERT(index_.contains(verdict.op));
  }
  PCCL_ASSERT(text_bytes == text_bytes_ && text_bytes <= protocol::kVerdictTextBytesMax);
  for (const auto& [op, index] : index_) {
    PCCL_ASSERT(index >= first_ && index < next_index() && kept_[index - first_].op == op);
  }
}

}  // namespace pccl::master
