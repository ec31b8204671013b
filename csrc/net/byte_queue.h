// ByteQueue: bytes that wait to be sent, in order. They lie in one piece. A plain value.
// It keeps the memory of a burst only while it is needed: see drop().
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace pccl::net {

class ByteQueue {
 public:
  // An empty queue that no longer needs its memory frees it if it has more bytes than this
  // (drop()).
  static constexpr size_t kKeptBytes = 64u << 10;

  void append(std::span<const std::byte> bytes);
  // Adds this number of bytes at the end. The caller writes them before it calls another method.
  std::span<std::byte> extend(size_t bytes);
  // Makes room for this number of further bytes at once.
  void reserve(size_t bytes);
  // All bytes of the queue; valid until the next call of another method.
  std::span<const std::byte> bytes() const { return {bytes_.get() + at_, size()}; }
  size_t size() const { return end_ - at_; }
  size_t capacity() const { return room_; }
  // Removes bytes from the front. If the queue is empty afterwards, it may free its memory: it does
  // so if the memory has more than kKeptBytes, and less than a quarter of it was used since the
  // queue was last empty. So the memory of a burst is freed after the next small send, such as a
  // ping.
  // REQUIRES: `bytes` is at most size().
  void drop(size_t bytes);
  void clear();

 private:
  void move_to(size_t room);

  std::unique_ptr<std::byte[]> bytes_;  // the queue is [at_, end_) of them
  size_t room_ = 0, at_ = 0, end_ = 0;
  size_t most_ = 0;  // the largest size since the queue was last empty
};

}  // namespace pccl::net
