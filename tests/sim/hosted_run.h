// HostedRun: the run that a reconfigure founds, in the process of its first listed one. It has a
// World of its own, with the master of the run and the PeerNodes of its members, and a Checker. The
// Processes own it, and decide who may enter.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/checker.h"
#include "tests/sim/workload.h"
#include "tests/sim/world.h"

namespace pccl::sim {

struct Process;

// The workload of a peer that joins by a reconfigure.
class MemberWorkload final : public Workload {
 public:
  // Called once, when the join has ended.
  using Joined = std::function<void(const Status&)>;
  MemberWorkload(PeerNode& node, Checker& checker, uint64_t seed, const Rules& rules,
                 Joined on_joined)
      : Workload(node, checker, seed, rules), on_joined_(std::move(on_joined)) {}
  void on_joint(const peer::FinishJoint& result) override;
  void on_gone(const Status& status) override;

 private:
  void end_join(const Status& status);
  Joined on_joined_;  // empty: it has been called
};

class HostedRun final : public Gate {
 public:
  struct Callbacks {
    std::function<void(HostedRun&, master::ConnectionId, const protocol::Hello&)> arrive;
    std::function<void(HostedRun&, master::ConnectionId)> closed;
    std::function<void(HostedRun&)> begun;
    std::function<void(HostedRun&, master::ConnectionId, uint32_t rank, const protocol::Regroup&)>
        offer;
    std::function<void(HostedRun&, bool begun)> regrouped;
  };
  HostedRun(std::string name, uint64_t seed, const WorldOptions& options, EventLoop& clock,
            Process* host, Callbacks callbacks);

  void arrive(master::ConnectionId id, const protocol::Hello& hello) override {
    callbacks_.arrive(*this, id, hello);
  }
  void closed(master::ConnectionId id) override { callbacks_.closed(*this, id); }
  void begun() override {
    has_begun_ = true;
    callbacks_.begun(*this);
  }
  void offer(master::ConnectionId id, uint32_t rank, const protocol::Regroup& message) override {
    callbacks_.offer(*this, id, rank, message);
  }
  void regrouped(bool begun) override { callbacks_.regrouped(*this, begun); }

  // `timeout`: of the join.
  PeerNode& add(Process& process, const protocol::RunSettings& settings,
                const protocol::Rendezvous& seen, Duration timeout,
                MemberWorkload::Joined on_joined);
  const std::string& name() const { return name_; }
  World& world() { return world_; }
  Checker& checker() { return checker_; }
  Process* host() const { return host_; }  // null: nobody was at its address
  bool has_begun() const { return has_begun_; }
  // Its peers, in the order of their ports.
  const std::vector<std::pair<Process*, PeerNode*>>& peers() const { return peers_; }
  // Compares what the survivors saw. At the end of the simulation.
  void compare_survivors();

 private:
  const std::string name_;
  const uint64_t seed_;
  const Callbacks callbacks_;
  Checker checker_;
  World world_;
  Process* const host_;
  bool has_begun_ = false;
  std::vector<std::pair<Process*, PeerNode*>> peers_;
};

}  // namespace pccl::sim
