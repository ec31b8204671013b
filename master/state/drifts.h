// Drifts: the members of a group that drift, each with its last correction and the number of its
// corrections (csrc/protocol/drift.h). It finds them in the election of a sync_shared_state, and
// counts them when the elected state is agreed on. Agreement owns one; diagnoses read all(). It is
// pure. Nothing of it is durable: after a restart of the master the counts begin anew.
// Invariants:
// 1. all() has voters of the last election only, so at most kMembersMax.
// 2. Each count is 1 or more.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/protocol/drift.h"
#include "master/state/election.h"

namespace pccl::master {

class Drifts {
 public:
  // The members will be corrected to the elected state. `recorded`: the agreed state before. An
  // earlier election that has come to no agreement is forgotten.
  // REQUIRES: the entries of all offers are known, unless nobody lacks any.
  void elected(const std::vector<OfferOf>& offers, const std::optional<AgreedState>& recorded,
               const Election& election);
  // The elected state is agreed on, and all members have it. Returns the warnings that are due.
  std::vector<std::string> agreed(GroupId group);

  const std::map<PeerId, protocol::Drift>& all() const { return all_; }

  // Asserts the invariants.
  void check() const;

 private:
  struct Found {
    PeerId peer;
    std::string whom;  // text: rank and name
    protocol::Drift drift;
  };
  std::vector<Found> found_;  // by the last election
  std::map<PeerId, protocol::Drift> all_;
};

}  // namespace pccl::master
