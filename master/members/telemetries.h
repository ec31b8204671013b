// Telemetries: the numbers that members report while somebody watches the run (Observe, Telemetry).
// No decision of the master depends on them. MasterCore owns it. It is pure.
// Invariants:
//   1. While nobody watches, no member is asked, and nothing is kept.
//   2. Each member is asked once on each of its connections.
// Failure: a Telemetry of a member that is not asked any more has crossed the Observe, and is
// ignored.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/protocol/messages.h"
#include "master/members/connections.h"

namespace pccl::master {

class Telemetries {
 public:
  // The time between two Telemetry of a member, and the time that one look at the run counts as
  // watching.
  static constexpr Duration kInterval = std::chrono::seconds(2);
  static constexpr Duration kWatchedFor = std::chrono::minutes(1);

  struct Report {
    protocol::Telemetry telemetry;
    Instant at;
  };
  // The last two reports of a member. Rates are differences of both.
  struct Reports {
    Report last;
    std::optional<Report> before;
  };

  Telemetries(const Context& context, Connections& connections)
      : context_(context), connections_(connections) {}

  void watched() { until_ = context_.now + kWatchedFor; }  // somebody has looked at the run
  // Asks the members that were not asked, and forgets the peers that are no members any more. If
  // nobody watches, it tells all to stop. Call it after watched(), and on each beat.
  void update(const std::vector<PeerId>& members);
  void on(PeerId member, const protocol::Telemetry& telemetry);

  const Reports* find(PeerId member) const;  // null: it has reported nothing
  // The numbers of the last report that the one before it did not have.
  std::vector<protocol::Scalar> new_scalars(PeerId member) const;
  bool is_watched() const { return context_.now < until_; }
  void check() const;  // asserts the invariants

 private:
  const Context& context_;
  Connections& connections_;
  Instant until_;
  std::map<PeerId, ConnectionId> asked_;
  std::map<PeerId, Reports> reports_;
};

}  // namespace pccl::master
