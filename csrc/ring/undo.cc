#include "csrc/ring/undo.h"

#include <algorithm>
#include <cstring>

#include "csrc/base/assert.h"
#include "csrc/ring/kernels.h"

namespace pccl::ring {

bool Undo::prepare(const Schedule& schedule) {
  const uint32_t blocks = schedule.block_count();
  lengths_.assign(blocks, 0);
  starts_.resize(blocks);
  for (uint32_t block = 0; block < blocks; ++block) starts_[block] = schedule.block_offset(block);
  return blocks == 0 || saved_.reserve(starts_.back() + schedule.block_bytes(blocks - 1));
}

void Undo::save(uint32_t block, uint64_t offset, const std::byte* from, size_t bytes) {
  PCCL_ASSERT(block < lengths_.size() && lengths_[block] == offset);
  for (size_t done = 0; done < bytes;) {
    const std::span<std::byte> to = saved_.at(starts_[block] + offset + done);
    const size_t piece = std::min(bytes - done, to.size());
    save_past_cache(to.data(), from + done, piece);
    done += piece;
  }
  lengths_[block] += bytes;
}

void Undo::restore(uint32_t block, std::byte* to) const {
  const uint64_t length = lengths_.empty() ? 0 : lengths_[block];
  for (uint64_t done = 0; done < length;) {
    const std::span<std::byte> from = saved_.at(starts_[block] + done);
    const size_t piece = std::min<uint64_t>(length - done, from.size());
    std::memcpy(to + done, from.data(), piece);
    done += piece;
  }
}

}  // namespace pccl::ring
