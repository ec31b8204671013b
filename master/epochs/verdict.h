// verdict: decides how operations end after a loss, from the survivors' state reports, and keeps
// the log of verdicts, which all members of an epoch receive in the same order. Pure; PlanBasis
// calls decide(), and PresentEpoch owns the log.
// The commit rule (docs/design.md, section 6). tests/cpp/master/epochs/test_verdict.cc checks it
// for every combination of states:
// 1. An operation commits if and only if every survivor has finished it.
// 2. A member has returned an operation only if every other member had finished it. If one survivor
//    reports that it has returned the operation, and another one that it has not finished it, one
//    of them lies: contradicting().
// 3. In a kept operation, elements keep their result if and only if every survivor has finished
//    them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"

namespace pccl::master {

using protocol::kVerdictIndexMax;

// The outcome of one operation. `survivors`: one state per survivor, kNotDone if it did not report
// the operation. REQUIRES: at least one survivor; no two of them contradict each other.
protocol::Outcome decide(std::span<const protocol::OpState> survivors);

// The reports on one operation, of the survivors that it concerns.
using States = std::map<PeerId, protocol::OpState>;
// The survivors to remove because of contradictory reports on one operation, under the assumption
// that only one of them lies; empty: there is no contradiction. If two or more have returned the
// operation, one of them is honest, so those who have not finished it lie, and vice versa. If one
// stands against one, nobody can know which of them lies, and both are removed.
// tests/model/verdict.cc checks this rule exhaustively.
std::vector<PeerId> contradicting(const States& survivors);

// The reports of the survivors, by operation. `concerned`: the survivors whose reports on an
// operation count. If a report lists an operation twice, the first entry counts.
std::map<OpKey, States> states_of(const std::map<PeerId, protocol::StateReport>& survivors,
                                  const std::function<std::vector<PeerId>(OpKey)>& concerned);

// The operations that commit, in order; all others do not, nor do those that concern no survivor.
std::vector<OpKey> decide(const std::map<OpKey, States>& reported);

// The kept operations: `keeps` is true for them, every survivor reports them, and they have not
// committed. Each has the number of elements that all survivors have finished.
std::vector<protocol::Kept> decide_kept(const std::map<PeerId, protocol::StateReport>& survivors,
                                        const std::vector<OpKey>& committed,
                                        const std::function<bool(OpKey)>& keeps);

// The verdicts of one epoch, numbered from 0. A verdict is kept until all members have acknowledged
// it.
// Invariants:
// 1. The first verdict that is kept is the first one that some member has not acknowledged.
// 2. No member has acknowledged a verdict that does not exist.
// 3. `index_` finds each kept verdict by its operation, and finds only kept verdicts. (If a member
//    has wrongly begun a settled operation again, it finds the last verdict of this operation.)
// 4. `text_bytes_` counts the bytes of the texts of all kept verdicts: at most
//    kVerdictTextBytesMax.
class VerdictLog {
 public:
  VerdictLog() = default;
  explicit VerdictLog(const std::vector<PeerId>& members);
  // Restored from a copy. `verdicts`: the verdicts from number `first` on. No member has
  // acknowledged any of them.
  VerdictLog(const std::vector<PeerId>& members, uint64_t first,
             const std::vector<protocol::Verdict>& verdicts);

  void append(std::vector<protocol::Verdict> verdicts);
  // `peer` has seen all verdicts before `index`. Returns false if fewer verdicts exist.
  bool acknowledge(PeerId peer, uint64_t index);
  void lose(PeerId peer);  // its acknowledgements are no longer needed

  uint64_t next_index() const { return first_ + kept_.size(); }
  uint64_t stable_index() const { return first_; }
  // Number of verdicts that this member has not acknowledged. REQUIRES: it is a member.
  uint64_t unseen(PeerId peer) const {
    const auto at = seen_.find(peer);
    PCCL_ASSERT(at != seen_.end() && at->second <= next_index());
    return next_index() - at->second;
  }
  // Whether an operation has a verdict that is still kept here.
  bool contains(OpKey op) const { return index_.contains(op); }
  const std::deque<protocol::Verdict>& kept() const { return kept_; }
  // The number of members whose acknowledgements count.
  size_t members() const { return seen_.size(); }
  bool is_member(PeerId peer) const { return seen_.contains(peer); }

  // The verdicts from number `index` on, in messages of bounded size; nothing if verdict `index` is
  // no longer kept, or is above the next one.
  std::optional<std::vector<protocol::Verdicts>> since(Epoch epoch, uint64_t index) const;

  // Asserts the invariants.
  void check() const;

 private:
  void trim();

  uint64_t first_ = 0;
  std::deque<protocol::Verdict> kept_;
  size_t text_bytes_ = 0;  // of kept_: at most kVerdictTextBytesMax
  std::map<OpKey, uint64_t> index_;
  std::map<PeerId, uint64_t> seen_;
};

}  // namespace pccl::master
