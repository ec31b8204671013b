#include "tests/sim/hosted_run.h"

#include <algorithm>

#include "tests/sim/cluster.h"
#include "tests/sim/process.h"

namespace pccl::sim {

void MemberWorkload::end_join(const Status& status) {
  if (const Joined on_joined = std::exchange(on_joined_, nullptr)) on_joined(status);
}

void MemberWorkload::on_joint(const peer::FinishJoint& result) {
  const bool joins = on_joined_ != nullptr;
  end_join(result.status);
  if (!joins || result.status.ok()) Workload::on_joint(result);
}

void MemberWorkload::on_gone(const Status& status) {
  end_join(status);
  Workload::on_gone(status);
}

HostedRun::HostedRun(std::string name, uint64_t seed, const WorldOptions& options, EventLoop& clock,
                     Process* host, Callbacks callbacks)
    : name_(std::move(name)),
      seed_(seed),
      callbacks_(std::move(callbacks)),
      world_(seed, options, &clock),
      host_(host) {
  world_.on_violation = [this](const std::string& text) { checker_.violation(text); };
  world_.set_gate(*this);
  if (host == nullptr) world_.kill_master();
  if (host != nullptr && host->stopped) world_.stop_master();
}

PeerNode& HostedRun::add(Process& process, const protocol::RunSettings& settings,
                         const protocol::Rendezvous& seen, Duration timeout,
                         MemberWorkload::Joined on_joined) {
  peer::Options options;
  options.founders = static_cast<uint32_t>(seen.handles.size());
  const bool few = world_.options().plant == Bug::kFewFounders && options.founders > 1;
  if (few) --options.founders;
  options.rank = static_cast<int32_t>(seen.rank);
  options.given = protocol::give_all(settings);
  options.piece_bytes = kPieceBytes;
  options.probe_bytes_max = kProbeBytes;
  options.master_timeout = kPeerTimeout * 3;
  options.join_timeout = timeout;
  options.rendezvous = seen;
  options.hosted = true;
  PeerNode& node = world_.add_peer(process.name, options);
  peers_.emplace_back(&process, &node);
  const Workload::Rules rules{.timeout = Cluster::kCallTimeout,
                              .retries = settings.on_peer_loss == protocol::LossPolicy::kRetry,
                              .rings_only = settings.pattern == protocol::PatternChoice::kRing,
                              .excused = [] { return true; },
                              .aftermath = kPeerTimeout,
                              .may_be_refused = [] { return true; },
                              // The members come with different states.
                              .state_is_lost =
                                  [](const std::string& error) {
                                    return error.find("no peer that is left") != std::string::npos;
                                  }};
  node.set_app(
      std::make_unique<MemberWorkload>(node, checker_, seed_, rules, std::move(on_joined)));
  return node;
}

void HostedRun::compare_survivors() {
  checker_.compare_survivors([this](const std::string& who) {
    return std::any_of(peers_.begin(), peers_.end(), [&who](const auto& one) {
      return one.second->name() == who && one.second->alive() && !one.second->gone();
    });
  });
}

}  // namespace pccl::sim
