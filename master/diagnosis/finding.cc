#include "master/diagnosis/finding.h"

namespace pccl::master {

const char* text(FindingCode code) {
  switch (code) {
    case FindingCode::kAloneWaitingForFounders: return "alone_waiting_for_founders";
    case FindingCode::kNewcomerUnreachable: return "newcomer_unreachable";
    case FindingCode::kNewcomerWaitsForUpdateTopology: return "newcomer_waits_for_update_topology";
    case FindingCode::kRankHasNotCalled: return "rank_has_not_called";
    case FindingCode::kDifferentCalls: return "different_calls";
    case FindingCode::kOperationsInFlight: return "operations_in_flight";
    case FindingCode::kWaitCycle: return "wait_cycle";
    case FindingCode::kBelowMinPeers: return "below_min_peers";
    case FindingCode::kPeerSilent: return "peer_silent";
    case FindingCode::kSlowPeer: return "slow_peer";
    case FindingCode::kLinkDown: return "link_down";
    case FindingCode::kSlowLink: return "slow_link";
    case FindingCode::kPlanOutdated: return "plan_outdated";
    case FindingCode::kMasterRecovering: return "master_recovering";
    case FindingCode::kSplitWorld: return "split_world";
    case FindingCode::kStateRefused: return "state_refused";
    case FindingCode::kStatesDiffer: return "states_differ";
    case FindingCode::kVersionOrTermsRefused: return "version_or_terms_refused";
    case FindingCode::kNothingWrong: return "nothing_wrong";
  }
  return "";
}

const char* text(Severity severity) {
  switch (severity) {
    case Severity::kNote: return "note";
    case Severity::kWarning: return "warning";
    case Severity::kError: return "error";
  }
  return "";
}

}  // namespace pccl::master
