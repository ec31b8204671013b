// pages: large pieces of memory straight from the system, on huge pages where it has them. Plain
// functions, any thread. The system clears a page when it is first touched, not before: memory that
// is never touched costs nothing.
#pragma once

#include <cstddef>

namespace pccl {

inline constexpr size_t kHugePageBytes = 2u << 20;

// `bytes` bytes of zeros that start on a huge page; null if the system has not as much.
// REQUIRES: a multiple of kHugePageBytes, above 0.
std::byte* map_pages(size_t bytes);
// As if each page of it was written to, but for the writing. An older system than Linux 5.14 does
// nothing.
void touch_pages(std::byte* memory, size_t bytes);
// Any run of huge pages that map_pages gave, whole or in part.
void unmap_pages(std::byte* memory, size_t bytes);

}  // namespace pccl
