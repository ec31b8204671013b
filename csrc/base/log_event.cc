#include "csrc/base/log_event.h"

#include <cstddef>
#include <iterator>

#include "csrc/base/assert.h"

namespace pccl {
namespace {

struct Named {
  LogEvent event;
  const char* name;
};

constexpr Named kNamed[] = {
    {LogEvent::kOther, "other"},
    {LogEvent::kMasterStarted, "master_started"},
    {LogEvent::kMasterEnded, "master_ended"},
    {LogEvent::kInsecure, "insecure"},
    {LogEvent::kJournalFailed, "journal_failed"},
    {LogEvent::kJournalRepaired, "journal_repaired"},
    {LogEvent::kKeyringRead, "keyring_read"},
    {LogEvent::kTokenRevoked, "token_revoked"},
    {LogEvent::kTokenChanged, "token_changed"},
    {LogEvent::kRefused, "refused"},
    {LogEvent::kConnectionClosed, "connection_closed"},
    {LogEvent::kRunEnded, "run_ended"},
    {LogEvent::kRunForgotten, "run_forgotten"},
    {LogEvent::kRegistered, "registered"},
    {LogEvent::kNotAdmitted, "not_admitted"},
    {LogEvent::kAdmitted, "admitted"},
    {LogEvent::kGivenUp, "given_up"},
    {LogEvent::kFounded, "founded"},
    {LogEvent::kEpochBegins, "epoch_begins"},
    {LogEvent::kEpochRecovered, "epoch_recovered"},
    {LogEvent::kEpochEnding, "epoch_ending"},
    {LogEvent::kEpochEnds, "epoch_ends"},
    {LogEvent::kLost, "lost"},
    {LogEvent::kLeft, "left"},
    {LogEvent::kDisconnected, "disconnected"},
    {LogEvent::kReconnected, "reconnected"},
    {LogEvent::kUnreachable, "unreachable"},
    {LogEvent::kBelowMinPeers, "below_min_peers"},
    {LogEvent::kWaitBegins, "wait_begins"},
    {LogEvent::kWaitEnds, "wait_ends"},
    {LogEvent::kWaitCycle, "wait_cycle"},
    {LogEvent::kCallSitesDiffer, "call_sites_differ"},
    {LogEvent::kOperationFailed, "operation_failed"},
    {LogEvent::kJointCallFailed, "joint_call_failed"},
    {LogEvent::kStateAgreed, "state_agreed"},
    {LogEvent::kStatesDiffer, "states_differ"},
    {LogEvent::kStateRefused, "state_refused"},
    {LogEvent::kStateProgress, "state_progress"},
    {LogEvent::kPlanMeasured, "plan_measured"},
    {LogEvent::kPlanAdopted, "plan_adopted"},
    {LogEvent::kPlanFound, "plan_found"},
    {LogEvent::kFindingBegins, "finding_begins"},
    {LogEvent::kFindingEnds, "finding_ends"},
    {LogEvent::kNotifyFailed, "notify_failed"},
    {LogEvent::kMasterLost, "master_lost"},
    {LogEvent::kMasterGone, "master_gone"},
    {LogEvent::kNotice, "notice"},
    {LogEvent::kHostWaits, "host_waits"},
    {LogEvent::kHookFailed, "hook_failed"},
    {LogEvent::kLinesDropped, "lines_dropped"},
};
constexpr size_t kCount = std::size(kNamed);

struct Events {
  constexpr Events() {
    for (size_t i = 0; i < kCount; ++i) all[i] = kNamed[i].event;
  }
  LogEvent all[kCount] = {};
};
constexpr Events kEvents;

}  // namespace

const char* text(LogEvent event) {
  const auto index = static_cast<size_t>(event);
  PCCL_ASSERT(index < kCount && kNamed[index].event == event);
  return kNamed[index].name;
}

std::span<const LogEvent> log_events() { return kEvents.all; }

}  // namespace pccl
