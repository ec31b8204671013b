#include "master/topology/pattern_choice.h"

#include <algorithm>
#include <cmath>

#include "csrc/base/assert.h"
namespace pccl::master::topology {
namespace {

constexpr double kBytes = 1 << 30;  // any number: its time gives the time of each byte
constexpr double kBytesMax = 1e18;  // no tensor has so large a size

}  // namespace

std::optional<protocol::DirectSizes> direct_sizes(const Network& network, const Tour& ring,
                                                  const std::vector<uint16_t>& shares) {
  PCCL_ASSERT(shares.size() >= 2 && ring.size() == shares.size());
  // The seconds that the direct pattern takes more than the ring, if its real time is the predicted
  // one times the full factor.
  const double factor = direct_excess(shares.size());
  const auto excess = [&](double bytes) {
    return factor * direct_seconds(network, shares, bytes) - ring_seconds(network, ring, bytes);
  };
  const double of_hops = excess(0), of_bytes = (excess(kBytes) - of_hops) / kBytes;
  protocol::DirectSizes sizes;
  if (of_hops >= 0 && of_bytes >= 0) return std::nullopt;
  if (of_hops <= 0 && of_bytes <= 0) return sizes;
  const double equal = std::ceil(-of_hops / of_bytes);
  const auto bound = static_cast<uint64_t>(std::min(equal, kBytesMax));
  (of_bytes > 0 ? sizes.to : sizes.from) = bound;
  return sizes;
}

}  // namespace pccl::master::topology
