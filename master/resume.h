// resume: what a peer has missed whose connection broke and that is back (PROTOCOL.md, section 7):
// what it says it saw against what the members of its group were told. A pure function. A live
// master has forgotten nothing, so what the peer brings is checked more than used. A member lags by
// at most one epoch: the next one needs its vote or, after a loss, its report.
#pragma once

#include <optional>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/protocol/messages.h"
#include "master/records.h"
#include "master/verdict.h"

namespace pccl::master {

// What the members of one epoch were told, or will be when they are back.
struct EpochTold {
  Epoch epoch;  // none: nothing was told yet
  VerdictLog verdicts;
  std::optional<protocol::EpochEnd> end;

  EpochRecord record() const;
  // `members`: who is to acknowledge.
  static EpochTold restored(const EpochRecord& record, const std::vector<PeerId>& members);
};

struct Told {
  EpochTold previous;
  EpochTold current;
  protocol::EpochStart start;        // of the current one
  std::optional<protocol::Ask> ask;  // the current one is ending
};

// In the order in which it is to be said. kProtocol if the peer says what cannot be.
Result<std::vector<protocol::Message>> missed(const Told& told, const protocol::Resume& resume);

}  // namespace pccl::master
