// admission: decides on the admission of a peer that sends Hello. The text of a refusal has advice
// for its user. Pure functions of the Hello and of the run that the peer wants to join; the
// MasterCore and the shell call them.
#pragma once

#include <optional>
#include <string>

#include "csrc/protocol/messages.h"
#include "master/members/membership.h"

namespace pccl::master {

// All these functions return nothing if the peer is accepted. `library`: name and version of the
// peer's library; may be empty.

// The first function refuses a peer that has no protocol version in common with the master. The
// second one refuses a peer that does not speak the version of its run.
std::optional<protocol::Reject> refuse_versions(const protocol::VersionRange& peer,
                                                const std::string& library,
                                                const protocol::VersionRange& master);
std::optional<protocol::Reject> refuse_version_of_run(const protocol::VersionRange& peer,
                                                      const std::string& library,
                                                      const std::string& run, uint16_t version);

// Refuses a name that no run can have. Can be called before there is a run of that name.
std::optional<protocol::Reject> refuse_run(const std::string& name);

// Refuses a Hello that does not fit the run or its group. `settings`: of the run; null before its
// first peer. `membership`: of the group in the Hello; null if there is no such group yet.
// `quorum`: of the same group. `group_count`: number of groups of the run.
std::optional<protocol::Reject> refuse(const protocol::Hello& hello,
                                       const protocol::RunSettings* settings,
                                       const Membership* membership, const Quorum& quorum,
                                       size_t group_count);

// Whether the group has peers of another launch than the launch of this peer.
bool is_of_other_launch(const protocol::Hello& hello, const Membership& membership);

}  // namespace pccl::master
