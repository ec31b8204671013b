// introduction: whether a peer that says Hello may come in, and why not, in words that tell its
// user what to change. Pure functions of what it says and of the run it wants to join.
#pragma once

#include <optional>
#include <string>

#include "csrc/protocol/messages.h"
#include "master/membership.h"

namespace pccl::master {

// What all peers of a run must have in common: as its first peer said.
struct Terms {
  protocol::LossPolicy policy = protocol::LossPolicy::kRaise;
  uint32_t peer_timeout_ms = 0;
  uint32_t first_call_timeout_ms = 0;
};

// Each: nothing if it is fine. `library`: what the peer calls itself, if it got that far.

// A peer, if it has no version in common with its master, or does not speak that of its run.
std::optional<protocol::Reject> refuse_versions(const protocol::VersionRange& peer,
                                                const std::string& library,
                                                const protocol::VersionRange& master);
std::optional<protocol::Reject> refuse_version_of_run(const protocol::VersionRange& peer,
                                                      const std::string& library,
                                                      const std::string& run, uint16_t version);

// Before there is a run of that name.
std::optional<protocol::Reject> refuse_run(const std::string& name);

// `terms`: none before the first peer. `membership` and `quorum`: of the group it names; null if
// there is none yet. `group_count`: of the run.
std::optional<protocol::Reject> refuse(const protocol::Hello& hello,
                                       const std::optional<Terms>& terms,
                                       const Membership* membership, const Quorum& quorum,
                                       size_t group_count);

}  // namespace pccl::master
