#include "csrc/net/byte_queue.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::net {

void ByteQueue::append(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

// At least doubles the room: many small calls must not copy everything each time.
void ByteQueue::reserve(size_t bytes) {
  const size_t wanted = bytes_.size() + bytes;
  if (wanted > bytes_.capacity()) bytes_.reserve(std::max(wanted, 2 * bytes_.capacity()));
}

void ByteQueue::drop(size_t bytes) {
  PCCL_ASSERT(bytes <= size());
  at_ += bytes;
  if (size() == 0) {
    const bool spacious = bytes_.size() < bytes_.capacity() / 4;
    clear();
    if (spacious && bytes_.capacity() > kKeptBytes) bytes_.shrink_to_fit();
  } else if (at_ > bytes_.size() / 2) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ = 0;
  }
}

void ByteQueue::clear() {
  bytes_.clear();
  at_ = 0;
}

}  // namespace pccl::net
