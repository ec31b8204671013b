// verdict: how operations end after a loss, from what the survivors hold, and the one list of
// verdicts that all members of an epoch hear in the same order. The rule is the one that DESIGN's
// model checks exhaustively: a verdict that anybody knows wins; else an operation commits if and
// only if every survivor has finished it. Of one that is kept, elements keep their result if and
// only if every survivor has finished them. Pure functions of reports.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "csrc/protocol/messages.h"

namespace pccl::master {

// The outcome of one operation; one state per survivor, kNotDone for who did not report it.
protocol::Outcome decide(std::span<const protocol::OpState> survivors);

// Which of the operations that the survivors report commit, in order; every other one does not.
// `concerned`: the survivors whose word counts for an operation; if it is nobody's it does not
// commit. One that is listed twice in one report counts as its first.
std::vector<OpKey> decide(const std::map<PeerId, protocol::Report>& survivors,
                          const std::function<std::vector<PeerId>(OpKey)>& concerned);

// What is kept: of each operation for which `keeps` says so, that every survivor reports and that
// has not committed, the elements that all of them have finished.
std::vector<protocol::Kept> decide_kept(const std::map<PeerId, protocol::Report>& survivors,
                                        const std::vector<OpKey>& committed,
                                        const std::function<bool(OpKey)>& keeps);

// The verdicts of one epoch, numbered from 0, until all members have acknowledged them.
class VerdictLog {
 public:
  VerdictLog() = default;
  explicit VerdictLog(const std::vector<PeerId>& members);
  // As it was, from what others have kept of it: the verdicts from `first` on. Nobody has seen any.
  VerdictLog(const std::vector<PeerId>& members, uint64_t first,
             const std::vector<protocol::Verdict>& verdicts);

  void append(std::vector<protocol::Verdict> verdicts);
  // `peer` has seen all before `index`. False: that many were never told.
  bool acknowledge(PeerId peer, uint64_t index);
  void lose(PeerId peer);  // nobody waits for its acknowledgements any more

  uint64_t next_index() const { return first_ + kept_.size(); }
  uint64_t stable_index() const { return first_; }
  // How many verdicts this member has not acknowledged.
  uint64_t unseen(PeerId peer) const { return next_index() - seen_.at(peer); }
  // Whether an operation has a verdict that is still kept.
  bool contains(OpKey op) const { return index_.contains(op); }
  const std::deque<protocol::Verdict>& kept() const { return kept_; }

  // What has to be said to somebody who has seen all before `index`, in messages of bounded size;
  // nothing if that is too long ago.
  std::optional<std::vector<protocol::Verdicts>> since(Epoch epoch, uint64_t index) const;

 private:
  void trim();

  uint64_t first_ = 0;
  std::deque<protocol::Verdict> kept_;
  size_t text_bytes_ = 0;  // of kept_: at most kVerdictTextBytesMax
  std::map<OpKey, uint64_t> index_;
  std::map<PeerId, uint64_t> seen_;
};

}  // namespace pccl::master
