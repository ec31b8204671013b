#include "master/routes.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "csrc/protocol/limits.h"
#include "csrc/protocol/shares.h"
#include "master/records.h"
#include "master/topology/pattern_choice.h"

namespace pccl::master {
namespace {

// Bytes of a chunk (csrc/ring/schedule.cc).
constexpr double kChunkBytesWan = 64 << 10, kChunkBytesNear = 256 << 10;

void for_each_pair(const std::vector<PeerId>& members, auto&& visit) {
  for (size_t rank = 0; rank < members.size(); ++rank) {
    for (size_t other = 0; other < rank; ++other) visit(members[other], members[rank]);
  }
}

}  // namespace

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
  const bool wan =
      std::chrono::microseconds(longest_rtt_in_mesh(links, members)) >= protocol::kWanRttMin;
  topology::Paths paths(size);
  std::vector<double> out(size), in(size);
  for (uint32_t from = 0; from < size; ++from) {
    for (uint32_t to = 0; to < size; ++to) {
      if (from == to) continue;
      const auto rate = static_cast<double>(links.rate(members[from], members[to]));
      const uint32_t rtt = links.rtt(members[from], members[to]);
      if (rate == 0 || rtt == 0) return std::nullopt;
      paths.rate.at(from, to) = rate;
      paths.hop.at(from, to) = rtt / 2e6 + (wan ? kChunkBytesWan : kChunkBytesNear) / rate;
      out[from] = std::max(out[from], rate);
      in[to] = std::max(in[to], rate);
    }
  }
  topology::Network network(std::move(paths));
  network.out = std::move(out);
  network.in = std::move(in);
  return network;
}

void set_routes(protocol::EpochStart& start, const Links& links, const PatternWish& wish) {
  using protocol::PatternChoice;
  const std::vector<PeerId> members = ids(start.members);
  start.ring.resize(members.size());
  std::iota(start.ring.begin(), start.ring.end(), 0u);
  start.rtt = longest_rtt_in_ring(links, members);
  const bool few =
      members.size() < 2 || (members.size() == 2 && wish.pattern == PatternChoice::kAny);
  if (wish.pattern == PatternChoice::kRing || few || !is_mesh(links, members)) return;
  std::vector<uint16_t> shares = shares_of(wish.shares, members.size());
  if (wish.pattern == PatternChoice::kAny) {
    const std::optional<topology::Network> network = network_of(links, members);
    const auto sizes = network ? direct_sizes(*network, start.ring, shares) : std::nullopt;
    if (!sizes) return;
    start.direct = *sizes;
  }
  start.shares = std::move(shares);
  start.rtt = longest_rtt_in_mesh(links, members);
}

}  // namespace pccl::master
