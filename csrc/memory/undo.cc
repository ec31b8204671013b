#include "csrc/memory/undo.h"

#include <algorithm>
#include <cstring>

#include "csrc/base/assert.h"
#include "csrc/memory/kernels.h"

namespace pccl::memory {

bool Undo::reserve(uint64_t bytes, uint64_t chunks) {
  if (!saved_.reserve(bytes)) return false;
  if (bytes > 0) lengths_.resize(chunks);
  return true;
}

void Undo::save(uint64_t chunk, uint64_t at, const std::byte* from, size_t bytes) {
  if (bytes == 0) return;  // lengths_ is empty if nothing was reserved
  lengths_[chunk] += static_cast<uint32_t>(bytes);
  for (size_t done = 0; done < bytes;) {
    const std::span<std::byte> to = saved_.at(at + done);
    const size_t piece = std::min(bytes - done, to.size());
    save_past_cache(to.data(), from + done, piece);
    done += piece;
  }
}

void Undo::read(uint64_t at, std::span<std::byte> to) const {
  for (size_t done = 0; done < to.size();) {
    const std::span<const std::byte> from = saved_.at(at + done);
    const size_t piece = std::min(to.size() - done, from.size());
    std::memcpy(to.data() + done, from.data(), piece);
    done += piece;
  }
}

void Undo::restore(uint64_t chunk, uint64_t at, std::byte* to, uint64_t from_byte) {
  const size_t bytes = lengths_[chunk];
  if (from_byte >= bytes) return;
  lengths_[chunk] = static_cast<uint32_t>(from_byte);
  read(at + from_byte, {to + from_byte, bytes - from_byte});
}

}  // namespace pccl::memory
