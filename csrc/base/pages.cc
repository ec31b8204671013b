#include "csrc/base/pages.h"

#include <sys/mman.h>

#include <cstdint>

#include "csrc/base/assert.h"

namespace pccl {
namespace {

bool starts_a_huge_page(const std::byte* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kHugePageBytes == 0;
}

}  // namespace

std::byte* map_pages(size_t bytes) {
  PCCL_ASSERT(bytes > 0 && bytes % kHugePageBytes == 0);
  if (bytes > SIZE_MAX - kHugePageBytes) return nullptr;
  // A mapping starts at any small page. So map one more huge page, and unmap the excess at both
  // ends.
  void* const mapped = mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(mapped);
  const size_t before =
      (kHugePageBytes - reinterpret_cast<uintptr_t>(mapped) % kHugePageBytes) % kHugePageBytes;
  if (before > 0) munmap(start, before);
  munmap(start + before + bytes, kHugePageBytes - before);
  PCCL_ASSERT(starts_a_huge_page(start + before));
  madvise(start + before, bytes, MADV_HUGEPAGE);  // if refused, small pages work too
  return start + before;
}

void prefault(std::byte* memory, size_t bytes) {
  madvise(memory, bytes, MADV_POPULATE_WRITE);  // if refused, the first writer of each page waits
}

void unmap_pages(std::byte* memory, size_t bytes) {
  PCCL_ASSERT(starts_a_huge_page(memory));
  PCCL_ASSERT(bytes > 0 && bytes % kHugePageBytes == 0);
  const int refused = munmap(memory, bytes);
  PCCL_ASSERT(refused == 0);
}

}  // namespace pccl
