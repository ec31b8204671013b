#include "master/topology/share_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/shares.h"

namespace pccl::master::topology {
namespace {

constexpr double kTotal = protocol::kSharesTotal;
// Maximum number of members for improve(). With more, it takes too long, and helps little: each
// share has few units.
constexpr size_t kMovedMax = 32;

// Seconds for so many bytes that the hops do not count, only the rates.
double seconds_of(const Network& network, const std::vector<uint16_t>& shares) {
  return direct_seconds(network, shares, 1e12);
}

// The time of the busiest path, uplink, downlink or trunk of `member`, for one byte.
double busiest_of(const Network& network, const std::vector<uint16_t>& shares, uint32_t member) {
  const auto members = static_cast<uint32_t>(shares.size());
  const double own = shares[member], in_all = kTotal + (members - 2.0) * own;
  double longest = in_all / std::min(network.out[member], network.in[member]);
  for (uint32_t other = 0; other < members; ++other) {
    if (other == member) continue;
    const double rate =
        std::min(network.paths.rate.at(member, other), network.paths.rate.at(other, member));
    longest = std::max(longest, (own + shares[other]) / rate);
  }
  for (const Network::Trunk& trunk : network.trunks) {
    if (!trunk.from[member] && !trunk.to[member]) continue;
    // The path of each pair across the trunk carries the shares of both members.
    double senders = 0, receivers = 0, share_of_senders = 0, share_of_receivers = 0;
    for (uint32_t one = 0; one < members; ++one) {
      if (trunk.from[one]) ++senders, share_of_senders += shares[one];
      if (trunk.to[one]) ++receivers, share_of_receivers += shares[one];
    }
    const double load = share_of_senders * receivers + share_of_receivers * senders;
    longest = std::max(longest, load / trunk.rate);
  }
  return longest;
}

// Gives out the units one by one. Each goes to the member whose busiest path, uplink, downlink or
// trunk takes the least time with it.
std::vector<uint16_t> dealt_out(const Network& network) {
  std::vector<uint16_t> shares(network.paths.members());
  for (uint32_t unit = 0; unit < protocol::kSharesTotal; ++unit) {
    uint32_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (uint32_t member = 0; member < shares.size(); ++member) {
      ++shares[member];
      const double needed = busiest_of(network, shares, member);
      --shares[member];
      // If two members need the same time, the member with the smaller share gets the unit.
      if (needed < least || (needed == least && shares[member] < shares[best]))
        best = member, least = needed;
    }
    ++shares[best];
  }
  return shares;
}

// Moves units between two members as long as that helps.
void improve(const Network& network, std::vector<uint16_t>& shares) {
  double least = seconds_of(network, shares);
  for (uint16_t step = protocol::kSharesTotal / 4; step > 0;) {
    bool better = false;
    for (uint32_t from = 0; from < shares.size(); ++from) {
      for (uint32_t to = 0; to < shares.size(); ++to) {
        if (from == to || shares[from] < step) continue;
        shares[from] = static_cast<uint16_t>(shares[from] - step);
        shares[to] = static_cast<uint16_t>(shares[to] + step);
        const double needed = seconds_of(network, shares);
        if (needed < least * (1 - 1e-9)) {
          least = needed;
          better = true;
          continue;
        }
        shares[from] = static_cast<uint16_t>(shares[from] + step);
        shares[to] = static_cast<uint16_t>(shares[to] - step);
      }
    }
    if (!better) step /= 2;
  }
}

}  // namespace

std::vector<uint16_t> fastest_shares(const Network& network) {
  const size_t members = network.paths.members();
  PCCL_ASSERT(members >= 2);
  std::vector<uint16_t> equal = protocol::equal_shares(members);
  std::vector<uint16_t> best = dealt_out(network);
  if (members <= kMovedMax) improve(network, best);
  // Equal shares are preferred, unless the found shares are faster by more than 1 %.
  const bool faster = seconds_of(network, best) < 0.99 * seconds_of(network, equal);
  return faster ? best : equal;
}

}  // namespace pccl::master::topology
