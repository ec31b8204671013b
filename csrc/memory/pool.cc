#include "csrc/memory/pool.h"

#include <algorithm>
#include <cstdlib>

#include "csrc/base/assert.h"
#include "csrc/base/pages.h"

namespace pccl::memory {
namespace {

static_assert(Pool::kSlabBytes % kHugePageBytes == 0);

std::byte* obtain(size_t bytes) {
  if (bytes == Pool::kSlabBytes) return map_pages(bytes);
  return static_cast<std::byte*>(std::aligned_alloc(64, bytes));
}

}  // namespace

Pool::~Pool() {
  PCCL_ASSERT(lent_ == 0);
  for (size_t index = 0; index < kClasses; ++index) {
    for (std::byte* memory : free_[index]) give_back(memory, class_bytes(index));
  }
}

void Pool::give_back(std::byte* memory, size_t bytes) {
  if (bytes < kSlabBytes) return std::free(memory);
  prefaulter_.forget({memory, bytes});
  unmap_pages(memory, bytes);
}

size_t Pool::class_of(size_t bytes) {
  PCCL_ASSERT(bytes > 0 && bytes <= kSlabBytes);
  return std::bit_width((std::max(bytes, kSmallestBytes) - 1) / kSmallestBytes);
}

std::byte* Pool::take(size_t bytes) {
  const size_t index = class_of(bytes);
  std::byte* memory = nullptr;
  if (!free_[index].empty()) {
    memory = free_[index].back();
    free_[index].pop_back();
    idle_ -= class_bytes(index);
  } else {
    memory = obtain(class_bytes(index));
    if (memory == nullptr) return nullptr;
  }
  lend(class_bytes(index));
  return memory;
}

bool Pool::take_slabs(uint64_t count, std::vector<std::byte*>& slabs) {
  std::vector<std::byte*>& free = free_[kClasses - 1];
  const uint64_t reused = std::min<uint64_t>(count, free.size());
  if (count > reused) {
    if (count > SIZE_MAX / kSlabBytes) return false;
    const uint64_t bytes = (count - reused) * kSlabBytes;
    std::byte* const fresh = map_pages(bytes);
    if (fresh == nullptr) return false;
    if (bytes >= kPrefaultedBytesMin) prefaulter_.add({fresh, bytes});
    for (uint64_t index = 0; index < count - reused; ++index)
      slabs.push_back(fresh + index * kSlabBytes);
  }
  slabs.insert(slabs.end(), free.end() - static_cast<ptrdiff_t>(reused), free.end());
  free.resize(free.size() - reused);
  idle_ -= reused * kSlabBytes;
  lend(count * kSlabBytes);
  return true;
}

void Pool::lend(uint64_t bytes) {
  lent_ += bytes;
  peak_now_ = std::max(peak_now_, lent_);
  trim();
}

void Pool::give(std::byte* memory, size_t bytes) {
  const size_t index = class_of(bytes);
  PCCL_ASSERT(memory != nullptr && lent_ >= class_bytes(index));
  lent_ -= class_bytes(index);
  idle_ += class_bytes(index);
  free_[index].push_back(memory);
  trim();
}

void Pool::turn() {
  if (++turns_ < kTurns) return;
  turns_ = 0;
  peak_before_ = peak_now_;
  peak_now_ = lent_;
  trim();
}

// Returns large pieces to the system first.
void Pool::trim() {
  const uint64_t most = std::max({kIdleBytes, peak_now_, peak_before_});
  for (size_t index = kClasses; index-- > 0 && lent_ + idle_ > most;) {
    while (!free_[index].empty() && lent_ + idle_ > most) {
      give_back(free_[index].back(), class_bytes(index));
      free_[index].pop_back();
      idle_ -= class_bytes(index);
    }
  }
}

Slabs::~Slabs() { shrink(0); }

void Slabs::shrink(uint64_t bytes) {
  const uint64_t kept = (bytes + Pool::kSlabBytes - 1) / Pool::kSlabBytes;
  while (slabs_.size() > kept) {
    const uint64_t start = (slabs_.size() - 1) * Pool::kSlabBytes;
    pool_->give(slabs_.back(), bytes_ - start);
    slabs_.pop_back();
    bytes_ = start;
  }
}

bool Slabs::reserve(uint64_t bytes) {
  PCCL_ASSERT(bytes_ == 0);
  const uint64_t whole = bytes / Pool::kSlabBytes;
  if (whole > 0 && !pool_->take_slabs(whole, slabs_)) return false;
  bytes_ = whole * Pool::kSlabBytes;
  if (bytes_ == bytes) return true;
  std::byte* const rest = pool_->take(bytes - bytes_);
  if (rest == nullptr) return false;
  slabs_.push_back(rest);
  bytes_ = bytes;
  return true;
}

std::span<std::byte> Slabs::at(uint64_t offset) const {
  PCCL_DCHECK(offset < bytes_);
  const uint64_t index = offset / Pool::kSlabBytes;
  const uint64_t within = offset % Pool::kSlabBytes;
  const uint64_t end = std::min<uint64_t>(bytes_ - index * Pool::kSlabBytes, Pool::kSlabBytes);
  return {slabs_[index] + within, end - within};
}

}  // namespace pccl::memory
