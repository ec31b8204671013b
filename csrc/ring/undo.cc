#include "csrc/ring/undo.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "csrc/base/assert.h"
#include "csrc/ring/kernels.h"

namespace pccl::ring {

void Undo::save(const std::byte* from, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const std::span<std::byte> to = saved_.at(length_);
    const size_t piece = std::min(bytes - done, to.size());
    save_past_cache(to.data(), from + done, piece);
    done += piece;
    length_ += piece;
  }
}

void Undo::restore(uint64_t at, std::byte* to, size_t bytes) const {
  PCCL_ASSERT(at + bytes <= length_);
  for (size_t done = 0; done < bytes;) {
    const std::span<std::byte> from = saved_.at(at + done);
    const size_t piece = std::min(bytes - done, from.size());
    std::memcpy(to + done, from.data(), piece);
    done += piece;
  }
}

}  // namespace pccl::ring
