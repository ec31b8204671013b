#include "master/epochs/routes.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/shares.h"
#include "master/runs/records.h"
#include "master/topology/pattern_choice.h"
#include "master/topology/share_search.h"
#include "master/topology/trunk_guess.h"

namespace pccl::master {
namespace {

// Seconds that a chunk takes from one member to the next. `rtt`: of their path; `longest_rtt`: the
// longest of all paths; both in microseconds.
double hop_seconds(uint32_t rtt, double rate, uint32_t longest_rtt) {
  const bool wan = std::chrono::microseconds(longest_rtt) >= protocol::kWanRttMin;
  const uint64_t bytes = wan ? protocol::kChunkBytesWan : protocol::kChunkBytesNear;
  return rtt / 2e6 + static_cast<double>(bytes) / rate;
}

void for_each_pair(const std::vector<PeerId>& members, auto&& visit) {
  for (size_t rank = 0; rank < members.size(); ++rank) {
    for (size_t other = 0; other < rank; ++other) visit(members[other], members[rank]);
  }
}

// The trunks that limit this network. A pair with an unknown RTT counts with the longest known RTT.
std::vector<topology::Network::Trunk> trunks_of(const topology::Network& network,
                                                const Links& links,
                                                const std::vector<PeerId>& members) {
  const uint32_t longest = longest_rtt_in_mesh(links, members);
  topology::CostTable rtts(members.size());
  std::vector<topology::Probed> probes;
  for (uint32_t from = 0; from < members.size(); ++from) {
    for (uint32_t to = 0; to < members.size(); ++to) {
      if (from == to) continue;
      const uint32_t rtt = links.rtt(members[from], members[to]);
      rtts.at(from, to) = rtt > 0 ? rtt : longest;
      const Links::Probe probe = links.probe(members[from], members[to]);
      if (probe.rate > 0)
        probes.push_back({from, to, static_cast<double>(probe.rate), probe.round});
    }
  }
  return guessed_trunks(network, rtts, probes);
}

}  // namespace

uint32_t rank_in(const std::vector<PeerId>& members, PeerId peer) {
  return static_cast<uint32_t>(std::find(members.begin(), members.end(), peer) - members.begin());
}

bool is_mesh(const Links& links, const std::vector<PeerId>& members) {
  bool all = true;
  for_each_pair(members, [&](PeerId a, PeerId b) { all = all && links.linked(a, b); });
  return all;
}

uint32_t longest_rtt_in_ring(const Links& links, const std::vector<PeerId>& members) {
  uint32_t longest = 0;
  for (size_t index = 0; index < members.size(); ++index) {
    const PeerId next = members[(index + 1) % members.size()];
    longest = std::max(longest, links.rtt(members[index], next));
  }
  return longest;
}

uint32_t longest_rtt_in_mesh(const Links& links, const std::vector<PeerId>& members) {
  uint32_t longest = 0;
  for_each_pair(members, [&](PeerId a, PeerId b) { longest = std::max(longest, links.rtt(a, b)); });
  return longest;
}

std::vector<uint16_t> shares_of(const std::vector<uint16_t>& wanted, size_t members) {
  return protocol::are_shares(wanted, members) ? wanted : protocol::equal_shares(members);
}

std::optional<topology::Network> network_of(const Links& links,
                                            const std::vector<PeerId>& members) {
  const auto size = static_cast<uint32_t>(members.size());
  const uint32_t longest = longest_rtt_in_mesh(links, members);
  topology::Paths paths(size);
  std::vector<double> out(size), in(size);
  for (uint32_t from = 0; from < size; ++from) {
    for (uint32_t to = 0; to < size; ++to) {
      if (from == to) continue;
      const auto rate = static_cast<double>(links.rate(members[from], members[to]));
      const uint32_t rtt = links.rtt(members[from], members[to]);
      if (rate == 0 || rtt == 0) return std::nullopt;
      paths.rate.at(from, to) = rate;
      paths.hop.at(from, to) = hop_seconds(rtt, rate, longest);
      out[from] = std::max(out[from], rate);
      in[to] = std::max(in[to], rate);
    }
  }
  topology::Network network(std::move(paths));
  network.out = std::move(out);
  network.in = std::move(in);
  if (size >= 2) network.trunks = trunks_of(network, links, members);
  return network;
}

namespace {

// Whether the path is near: for example, both ends are on one machine.
bool is_near(uint32_t rtt) {
  return rtt > 0 && std::chrono::microseconds(rtt) < protocol::kWanRttMin;
}

// Rate of a path without a link, in bytes per second. A plan uses such a path only if it must.
constexpr double kNoRate = 1;
constexpr double kGuessed = 0.7;          // for an unknown path: of the best rates of its ends
constexpr double kRateOfNothing = 1e8;    // if no path is known: any number, the same for all
constexpr uint32_t kRttOfNothing = 1000;  // likewise, in microseconds

// The rate of the fastest known path out of each member, and of the fastest one into it, without
// near paths; 0: unknown.
struct Fastest {
  Fastest(const Links& links, const std::vector<PeerId>& members)
      : out(members.size()), in(members.size()) {
    for (size_t from = 0; from < members.size(); ++from) {
      for (size_t to = 0; to < members.size(); ++to) {
        if (from == to || is_near(links.rtt(members[from], members[to]))) continue;
        const auto rate = static_cast<double>(links.rate(members[from], members[to]));
        out[from] = std::max(out[from], rate);
        in[to] = std::max(in[to], rate);
        any = std::max(any, rate);
      }
    }
  }
  double guess(size_t from, size_t to) const {
    if (any == 0) return kRateOfNothing;
    if (out[from] == 0 || in[to] == 0) return kGuessed * std::max(out[from], in[to]);
    return kGuessed * std::min(out[from], in[to]);
  }
  std::vector<double> out, in;
  double any = 0;
};

}  // namespace

topology::Network guessed_network(const Links& links, const std::vector<PeerId>& members) {
  const auto size = static_cast<uint32_t>(members.size());
  const Fastest fastest(links, members);
  const uint32_t longest = std::max(longest_rtt_in_mesh(links, members), kRttOfNothing);
  topology::Paths paths(size);
  for (uint32_t from = 0; from < size; ++from) {
    for (uint32_t to = 0; to < size; ++to) {
      if (from == to) continue;
      const uint32_t rtt = links.rtt(members[from], members[to]);
      double rate = static_cast<double>(links.rate(members[from], members[to]));
      if (rate == 0) rate = is_near(rtt) ? topology::Network::kUnlimited : fastest.guess(from, to);
      if (rate == 0) rate = kGuessed * fastest.any;
      if (!links.linked(members[from], members[to])) rate = kNoRate;
      paths.rate.at(from, to) = rate;
      paths.hop.at(from, to) = hop_seconds(rtt > 0 ? rtt : longest, rate, longest);
    }
  }
  topology::Network network(std::move(paths));
  for (uint32_t member = 0; member < size; ++member) {
    if (fastest.out[member] > 0) network.out[member] = fastest.out[member];
    if (fastest.in[member] > 0) network.in[member] = fastest.in[member];
  }
  if (size >= 2) network.trunks = trunks_of(network, links, members);
  return network;
}

namespace {

// Whether each member has a path out of it, and a path into it, with a known rate.
bool all_ends_are_known(const Links& links, const std::vector<PeerId>& members) {
  return std::all_of(members.begin(), members.end(), [&](PeerId one) {
    bool out = false, in = false;
    for (const PeerId other : members) {
      out = out || links.rate(one, other) > 0;
      in = in || links.rate(other, one) > 0;
    }
    return out && in;
  });
}

}  // namespace

Doubts::Doubts(const Links& links, const std::vector<PeerId>& members)
    : links_(links), members_(members) {
  Fastest fastest(links, members);
  out_ = std::move(fastest.out);
  in_ = std::move(fastest.in);
}

double Doubts::of(PeerId from, PeerId to) const {
  const auto rate = static_cast<double>(links_.rate(from, to));
  if (rate == 0 || is_near(links_.rtt(from, to))) return 0;
  return std::min(out_[rank_in(members_, from)], in_[rank_in(members_, to)]) / rate;
}

topology::Plan plan_of(const protocol::EpochStart& start) {
  return {start.ring, start.shares, start.direct};
}

topology::PlanQuestion question_of(topology::Network network, const Links& links,
                                   const std::vector<PeerId>& members, const PatternWish& wish,
                                   double bytes) {
  const bool may_be_direct = is_mesh(links, members) && all_ends_are_known(links, members);
  return {std::move(network), wish.pattern, wish.shares, may_be_direct, bytes, {}};
}

namespace {

// The shares for large all-reduces, and the sizes that use them; nothing if all use the ring.
std::optional<topology::Plan> direct_plan(const protocol::EpochStart& start, const Links& links,
                                          const std::vector<PeerId>& members,
                                          const PatternWish& wish, const RoutesBefore& before) {
  topology::Plan plan = plan_of(start);
  if (wish.pattern != protocol::PatternChoice::kAny) {
    plan.shares = shares_of(wish.shares, members.size());
    return plan;
  }
  const bool same = before.start != nullptr && ids(before.start->members) == members;
  if (same && !before.start->shares.empty()) {
    plan.shares = before.start->shares;
    plan.direct = before.start->direct;
    return plan;
  }
  const auto network = network_of(links, members);
  if (!network) return std::nullopt;
  const bool wanted = protocol::are_shares(wish.shares, members.size());
  plan.shares = wanted ? wish.shares : topology::fastest_shares(*network);
  const auto sizes = direct_sizes(*network, plan.ring, plan.shares);
  if (!sizes) return std::nullopt;
  plan.direct = *sizes;
  return plan;
}

}  // namespace

void set_routes(protocol::EpochStart& start, const Links& links, const PatternWish& wish,
                const RoutesBefore& before) {
  using protocol::PatternChoice;
  const std::vector<PeerId> members = ids(start.members);
  PCCL_ASSERT(start.ring.empty() == members.empty());
  std::vector<PeerId> in_ring;
  for (const uint32_t rank : start.ring) in_ring.push_back(members[rank]);
  start.rtt = longest_rtt_in_ring(links, in_ring);
  const bool few =
      members.size() < 2 || (members.size() == 2 && wish.pattern == PatternChoice::kAny);
  if (wish.pattern == PatternChoice::kRing || few || !is_mesh(links, members)) return;
  const topology::Plan* const adopted = before.plan_for(members);
  const auto plan = adopted ? *adopted : direct_plan(start, links, members, wish, before);
  if (!plan || plan->shares.empty()) return;
  start.shares = plan->shares;
  start.direct = plan->direct;
  start.rtt = longest_rtt_in_mesh(links, members);
}

}  // namespace pccl::master
