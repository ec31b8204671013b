// pool_buffer: buffers of a Pool that are given back when they are destroyed. Each belongs to the
// thread of its Pool, which must outlive it.
#pragma once

#include <cstddef>
#include <span>

#include "csrc/memory/pool.h"

namespace pccl::memory {

// A pool buffer that grows. It is as large as the largest request to fit() so far.
class ScratchBuffer {
 public:
  explicit ScratchBuffer(Pool& pool) : pool_(&pool) {}
  ~ScratchBuffer() {
    if (bytes_ > 0) pool_->give(data_, bytes_);
  }
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;
  // Makes the buffer at least this large, and perhaps loses its content. False if there is no
  // memory.
  bool fit(size_t bytes) {
    if (bytes <= bytes_) return true;
    if (bytes_ > 0) pool_->give(data_, bytes_);
    data_ = pool_->take(bytes);
    bytes_ = data_ == nullptr ? 0 : bytes;
    return data_ != nullptr;
  }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  Pool* const pool_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// A pool buffer that lives as long as this object.
class PoolBuffer {
 public:
  PoolBuffer(Pool& pool, size_t bytes) : pool_(&pool), bytes_(bytes), data_(pool.take(bytes)) {}
  ~PoolBuffer() {
    if (data_ != nullptr) pool_->give(data_, bytes_);
  }
  PoolBuffer(const PoolBuffer&) = delete;
  PoolBuffer& operator=(const PoolBuffer&) = delete;
  std::span<std::byte> bytes() const { return {data_, data_ == nullptr ? 0 : bytes_}; }

 private:
  Pool* const pool_;
  const size_t bytes_;
  std::byte* const data_;
};

}  // namespace pccl::memory
