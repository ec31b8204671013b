// EpochPlan: the next step in the sequence of epochs, as a value: the end of the present epoch, the
// start of the next one, or both. Without either, the present epoch continues. Epochs makes the
// record of a plan durable, and then sends the plan to the members. A PlanBasis makes plans: it
// reads the parts of a group and changes nothing.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/protocol/messages.h"
#include "master/epochs/losses.h"
#include "master/epochs/routes.h"
#include "master/epochs/verdict.h"
#include "master/members/misfit.h"
#include "master/runs/records.h"

namespace pccl::master {

class Membership;
class PresentEpoch;
struct Context;
struct Quorum;

struct EpochPlan {
  uint64_t token = 0;  // of the record of the plan
  std::optional<protocol::EpochEnd> end = {};
  std::optional<protocol::EpochStart> start = {};
  size_t lost = 0;  // number of losses when the plan was made
};

// The state reports of the survivors.
using Reports = std::map<PeerId, protocol::StateReport>;

struct PlanBasis {
  const Context& context;
  const Quorum& quorum;
  const Membership& membership;
  const PresentEpoch& present;
  const Losses& losses;
  // The members that a reconfigure lists; empty: none is under way.
  const std::vector<PeerId>& regroup;

  // Whether all operations would continue in the next epoch, if the present epoch had to end now.
  bool continues() const;
  // Returns the start of an epoch with these members. `numbers`: a start that has only its epoch,
  // generation and `together`. `planned`: a plan, used if it is for these members; null: none.
  protocol::EpochStart start(protocol::EpochStart numbers, const std::vector<PeerId>& members,
                             const RoutePlan* planned) const;
  // The survivors whose reports contradict each other, with the reason. A survivor may be named
  // twice. REQUIRES: all survivors have reported.
  std::vector<Misfit> liars(const Reports& reports) const;
  // `syncs`: a sync_shared_state is under way. It continues if a next epoch is possible. Nothing
  // continues into a reconfigure.
  protocol::EpochEnd end(const Reports& reports, bool syncs) const;
  // The lost members that an EpochEnd names. It names none if the master ends: then its text names
  // this end as the reason, because no update_topology can repair it.
  std::vector<protocol::Member> named_losses() const;
  std::string lost_text() const;
  // Returns why calls fail. If an EpochEnd has broken the group: its text, with kMasterLost if the
  // master ends, otherwise kPeerLost. If there is no such EpochEnd: the members that were lost or
  // have left, with kPeerLost. REQUIRES: a member was lost or has left, or the group is broken.
  Status end_status() const;
  MembershipRecord record(GroupId group, const EpochPlan& plan) const;
  // The reports of the survivors on the operations without a verdict.
  std::map<OpKey, States> states(const Reports& reports) const;
};

}  // namespace pccl::master
