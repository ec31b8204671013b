// ByteQueue: bytes that wait to be sent, in order. They lie in one piece. A plain value.
// It keeps the memory of a burst only while it is needed: see drop().
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace pccl::net {

class ByteQueue {
 public:
  // A queue with more room than this is freed when it is not needed.
  static constexpr size_t kKeptBytes = 64u << 10;

  void append(std::span<const std::byte> bytes);
  // Makes room for this many more bytes at once.
  void reserve(size_t bytes);
  // All bytes of the queue; valid until the next call of another method.
  std::span<const std::byte> bytes() const { return std::span(bytes_).subspan(at_); }
  size_t size() const { return bytes_.size() - at_; }
  size_t capacity() const { return bytes_.capacity(); }
  // Removes bytes from the front. When the queue runs empty and has needed less than a quarter of
  // its room since it was empty before, a large one is freed. So after a burst, the next ping
  // returns the memory.
  // REQUIRES: at most size().
  void drop(size_t bytes);
  void clear();

 private:
  std::vector<std::byte> bytes_;
  size_t at_ = 0;  // bytes that were dropped
};

}  // namespace pccl::net
