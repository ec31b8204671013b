#include "csrc/ring/cut.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::ring {

uint64_t Cut::slice_bytes_min(uint32_t grain) { return uint64_t{protocol::kSharesTotal} * grain; }

Cut::Cut(uint64_t bytes, const std::vector<uint16_t>& shares, uint32_t chunk_bytes, uint32_t grain)
    : bytes_(bytes), grain_(grain) {
  PCCL_ASSERT(grain > 0 && grain % kGrain == 0);
  for (const uint16_t share : shares) up_to_.push_back(up_to_.back() + share);
  PCCL_ASSERT(up_to_.back() == protocol::kSharesTotal);
  const uint64_t largest = *std::max_element(shares.begin(), shares.end());
  const uint64_t wanted = uint64_t{chunk_bytes} * protocol::kSharesTotal / largest;
  const uint64_t least = slice_bytes_min(grain);
  slice_bytes_ = std::max(wanted / least, uint64_t{1}) * least;
  slices_ = (bytes + slice_bytes_ - 1) / slice_bytes_;
  // A tensor smaller than a slice is one small slice. Both ends of a block are rounded up to whole
  // grains, so a block has at most its exact size, rounded up.
  const uint64_t slice = std::min(whole_grains(bytes), slice_bytes_);
  const uint64_t most =
      whole_grains((slice * largest + protocol::kSharesTotal - 1) / protocol::kSharesTotal);
  block_bytes_max_ = static_cast<uint32_t>(std::max(most, grain_));
}

// Returns where the blocks of the first `ranks` ranks end, from the start of a slice of `bytes`
// bytes.
uint64_t Cut::end(uint64_t bytes, uint32_t ranks) const {
  const uint64_t exact = bytes * up_to_[ranks];
  return std::min(bytes,
                  whole_grains((exact + protocol::kSharesTotal - 1) / protocol::kSharesTotal));
}

Cut::Block Cut::block(uint64_t slice, uint32_t rank) const {
  PCCL_DCHECK(slice < slices_ && rank + 1 < up_to_.size());
  const uint64_t before = slice * slice_bytes_;
  const uint64_t bytes = std::min(slice_bytes_, bytes_ - before);
  const uint64_t from = end(bytes, rank);
  return {before + from, static_cast<uint32_t>(end(bytes, rank + 1) - from)};
}

}  // namespace pccl::ring
