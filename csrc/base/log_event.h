// LogEvent: the kinds of lines in the log, for programs that read it. docs/watching.md lists them,
// and a test compares both lists. Plain values.
// The names are public: a program may compare them, so none is ever renamed or used for another
// kind of line.
#pragma once

#include <cstdint>
#include <span>

namespace pccl {

enum class LogEvent : uint8_t {
  kOther,
  kMasterStarted,
  kMasterEnded,
  kInsecure,
  kJournalFailed,
  kJournalRepaired,
  kKeyringRead,
  kTokenRevoked,
  kTokenChanged,
  kRefused,
  kConnectionClosed,
  kRunEnded,
  kRunForgotten,
  kRegistered,
  kNotAdmitted,
  kAdmitted,
  kGivenUp,
  kFounded,
  kEpochBegins,
  kEpochRecovered,
  kEpochEnding,
  kEpochEnds,
  kLost,
  kLeft,
  kDisconnected,
  kReconnected,
  kUnreachable,
  kBelowMinPeers,
  kWaitBegins,
  kWaitEnds,
  kWaitCycle,
  kCallSitesDiffer,
  kOperationFailed,
  kJointCallFailed,
  kStateAgreed,
  kStatesDiffer,
  kStateRefused,
  kStateProgress,
  kPlanMeasured,
  kPlanAdopted,
  kPlanFound,
  kFindingBegins,
  kFindingEnds,
  kNotifyFailed,
  kMasterLost,
  kMasterGone,
  kNotice,
  kHostWaits,
  kHookFailed,
  kLinesDropped,
};
const char* text(LogEvent event);  // "epoch_begins"

// All of them, in the order of the enumeration.
std::span<const LogEvent> log_events();

}  // namespace pccl
