// Finding: one reason why a run, or a peer of it, stands still, and the next step for a person.
// diagnosis.h makes them. `pccl status`, the JSON of the snapshot and the transcripts of scenarios
// show them. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pccl::master {

// The names of the codes are public: a program may compare them, so none is ever renamed.
enum class FindingCode : uint8_t {
  kAloneWaitingForFounders,
  kNewcomerUnreachable,
  kNewcomerWaitsForUpdateTopology,
  kRankHasNotCalled,
  kDifferentCalls,
  kOperationsInFlight,
  kWaitCycle,
  kBelowMinPeers,
  kPeerSilent,
  kSlowPeer,
  kLinkDown,
  kSlowLink,
  kPlanOutdated,
  kMasterRecovering,
  kSplitWorld,
  kStateRefused,
  kStatesDiffer,
  kVersionOrTermsRefused,
  kNothingWrong,
};
inline constexpr size_t kFindingCodes = static_cast<size_t>(FindingCode::kNothingWrong) + 1;
const char* text(FindingCode code);  // "rank_has_not_called"

enum class Severity : uint8_t {
  kNote,     // all is well
  kWarning,  // the members continue, but a person should know
  kError,    // somebody stands still
};
const char* text(Severity severity);

struct Finding {
  FindingCode code = FindingCode::kNothingWrong;
  Severity severity = Severity::kNote;
  std::vector<std::string> whom = {};  // the guilty peers, by name: kRanksNamedMax at most
  std::string text;                    // a sentence
  std::string next;                    // the next step of a person: a sentence or a command
};

}  // namespace pccl::master
