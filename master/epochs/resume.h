// resume: finds the messages that a resumed peer has missed, because its connection broke
// (PROTOCOL.md, section 7). It compares the report of the peer with the messages that were sent to
// the members of its group. Pure values and functions; PresentEpoch calls them. A master that was
// not restarted has forgotten nothing, so it uses the peer's report mainly for checks.
// Invariant: a member lags by at most one epoch, because the next epoch needs its vote or, after a
// loss, its state report.
#pragma once

#include <optional>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/protocol/messages.h"
#include "master/epochs/verdict.h"
#include "master/runs/records.h"

namespace pccl::master {

// The log of one epoch: the messages that its members have received, or will receive when they
// resume.
struct AnnouncedEpoch {
  Epoch epoch;  // none: nothing was sent yet
  VerdictLog verdicts;
  std::optional<protocol::EpochEnd> end;

  EpochRecord record() const;
  // `members`: the members whose acknowledgements of verdicts count.
  static AnnouncedEpoch restored(const EpochRecord& record, const std::vector<PeerId>& members);
};

struct Announced {
  AnnouncedEpoch previous;
  AnnouncedEpoch current;
  protocol::EpochStart start;  // of the current epoch
  // the freeze request, if the current epoch is ending
  std::optional<protocol::FreezeRequest> freeze;

  void end(protocol::EpochEnd how);       // the current epoch ends
  void begin(protocol::EpochStart next);  // the current epoch is now the previous one
};

// kProtocol if the report contradicts itself.
Status check_form(const protocol::Resume& resume);

// Returns the missed messages, in the order of sending. kProtocol if the peer's report is
// impossible.
Result<std::vector<protocol::Message>> missed(const Announced& announced,
                                              const protocol::Resume& resume);

// The operations that have a verdict and that this member has not called yet. They include those
// whose verdict is in the messages that it missed.
std::vector<protocol::Uncalled> uncalled_by(const Announced& announced,
                                            const protocol::Resume& resume);

}  // namespace pccl::master
