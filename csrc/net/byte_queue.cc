#include "csrc/net/byte_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::net {

void ByteQueue::append(std::span<const std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(extend(bytes.size()).data(), bytes.data(), bytes.size());
}

std::span<std::byte> ByteQueue::extend(size_t bytes) {
  reserve(bytes);
  end_ += bytes;
  return {bytes_.get() + end_ - bytes, bytes};
}

// Moves the queue to the front if that frees at least its size. Otherwise at least doubles the
// room. So many small calls do not copy everything each time.
void ByteQueue::reserve(size_t bytes) {
  if (end_ + bytes > room_) {
    if (size() + bytes <= room_ && size() <= at_) {
      std::copy_n(bytes_.get() + at_, size(), bytes_.get());
      end_ = size();
      at_ = 0;
    } else {
      move_to(std::max(size() + bytes, 2 * room_));
    }
  }
  most_ = std::max(most_, size() + bytes);
}

// Moves the queue to memory for `room` bytes; 0: frees it.
void ByteQueue::move_to(size_t room) {
  auto memory = room > 0 ? std::make_unique_for_overwrite<std::byte[]>(room) : nullptr;
  if (memory) std::copy_n(bytes_.get() + at_, size(), memory.get());
  end_ = size();
  at_ = 0;
  bytes_ = std::move(memory);
  room_ = room;
}

void ByteQueue::drop(size_t bytes) {
  PCCL_ASSERT(bytes <= size());
  at_ += bytes;
  if (size() == 0) {
    const bool spacious = most_ < room_ / 4;
    clear();
    if (spacious && room_ > kKeptBytes) move_to(0);
  }
}

void ByteQueue::clear() { at_ = end_ = most_ = 0; }

}  // namespace pccl::net
