// Cut: computes how the direct pattern cuts a tensor. It cuts the tensor into slices, and each
// slice into one block per rank. The sizes of the blocks are in proportion to the shares of the
// ranks. A block is one chunk.
// It is a plain value and pure arithmetic: every member computes the same cut.
// Invariants:
//  (1) The blocks lie end to end, by rank, and cover the tensor. Each begins on a multiple of the
//      grain.
//  (2) All slices have slice_bytes(), except the last, which has the rest.
//  (3) No block has more than block_bytes_max() bytes. The blocks of a rank with share 0 are empty.
#pragma once

#include <cstdint>
#include <vector>

namespace pccl::ring {

class Cut {
 public:
  Cut() = default;  // the cut of an empty tensor
  // The blocks of the largest share have about `chunk_bytes` bytes. They have more only if a slice
  // would otherwise be smaller than slice_bytes_min(grain). REQUIRES: the shares pass
  // protocol::are_shares(); `grain`, in bytes, is a multiple of kGrain.
  Cut(uint64_t bytes, const std::vector<uint16_t>& shares, uint32_t chunk_bytes,
      uint32_t grain = kGrain);

  static constexpr uint32_t kGrain = 64;  // a cache line
  // In a slice of this size, each 256th is one grain. A share is a number of 256ths.
  static uint64_t slice_bytes_min(uint32_t grain);

  uint64_t slices() const { return slices_; }
  uint64_t slice_bytes() const { return slice_bytes_; }
  uint32_t block_bytes_max() const { return block_bytes_max_; }
  struct Block {
    uint64_t offset = 0;  // from the start of the tensor
    uint32_t bytes = 0;
  };
  Block block(uint64_t slice, uint32_t rank) const;

 private:
  uint64_t whole_grains(uint64_t bytes) const { return (bytes + grain_ - 1) / grain_ * grain_; }
  uint64_t end(uint64_t bytes, uint32_t ranks) const;

  uint64_t bytes_ = 0;
  uint64_t grain_ = kGrain;
  uint64_t slices_ = 0;
  uint64_t slice_bytes_ = kGrain;
  uint32_t block_bytes_max_ = kGrain;
  std::vector<uint32_t> up_to_ = {0};  // entry i: the sum of the first i shares
};

}  // namespace pccl::ring
