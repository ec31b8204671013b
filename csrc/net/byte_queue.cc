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

// At least doubles the room: many small calls must not copy everything each time.
void ByteQueue::reserve(size_t bytes) {
  if (end_ + bytes > room_) move_to(std::max(end_ + bytes, 2 * room_));
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
    const bool spacious = end_ < room_ / 4;
    clear();
    if (spacious && room_ > kKeptBytes) move_to(0);
  } else if (at_ > end_ / 2) {
    std::copy_n(bytes_.get() + at_, size(), bytes_.get());
    end_ = size();
    at_ = 0;
  }
}

void ByteQueue::clear() { at_ = end_ = 0; }

}  // namespace pccl::net
