// VerdictLog holds the master's decisions of the present epoch: the number of verdicts that this
// peer has received, the verdicts that some member may not have received yet, and the verdicts on
// operations that were not called here yet. A restarted master gets the verdicts back from here.
// VerdictLog belongs to Operations.
// Invariants:
//   1. At most kOpsOpenMax verdicts are kept. This peer has received all of them. The last one that
//      it has received is kept.
//   2. At most kOpsOpenMax verdicts are kept that came before the call of their operation. All of
//      them are aborts.
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "csrc/base/status.h"
#include "csrc/peer/context.h"

namespace pccl::peer {

class VerdictLog {
 public:
  // kProtocol if a message does not continue where the last one ended.
  Status check(const protocol::Verdicts& verdicts) const;
  // Adds the next verdict, and forgets those that all members have received by then. REQUIRES: the
  // code of the verdict fits its outcome.
  void add(const protocol::Verdict& verdict);
  uint64_t seen() const { return seen_; }

  // Keeps a verdict on an operation that was not called here yet. False: there are too many.
  // REQUIRES: the verdict is an abort.
  bool keep_early(const protocol::Verdict& verdict);
  std::optional<protocol::Verdict> take_early(OpKey op);

  void describe(protocol::Resume& resume) const;
  void begin_epoch();  // indices start at zero
  void begin_generation();

  // The verdicts of operations that were not called here yet.
  const std::map<OpKey, protocol::Verdict>& early() const { return early_; }
  void check() const;  // asserts the invariants

 private:
  uint64_t seen_ = 0;
  std::deque<protocol::Verdict> kept_;  // the last of them has index seen_ - 1
  std::map<OpKey, protocol::Verdict> early_;
};

}  // namespace pccl::peer
