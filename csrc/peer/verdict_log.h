// VerdictLog: what the master has decided in this epoch while it goes on: how far we have heard,
// what some member may not have heard yet (a master that forgot is told it again), and what
// concerns operations that were not called here yet.
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "csrc/peer/context.h"

namespace pccl::peer {

class VerdictLog {
 public:
  // kProtocol if a message does not go on where the last one ended.
  Status check(const protocol::Verdicts& verdicts) const;
  void add(const protocol::Verdict& verdict);
  void forget(uint64_t stable_index);  // all before it are known to everybody
  uint64_t seen() const { return seen_; }

  // False: there are too many.
  bool keep_early(const protocol::Verdict& verdict);
  std::optional<protocol::Verdict> take_early(OpKey op);

  void describe(protocol::Resume& resume) const;
  void begin_epoch();  // numbers from zero
  void begin_generation();

 private:
  uint64_t seen_ = 0;
  std::deque<protocol::Verdict> kept_;  // the last of them is number seen_ - 1
  std::map<OpKey, protocol::Verdict> early_;
};

}  // namespace pccl::peer
