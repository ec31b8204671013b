// pages: maps large pieces of memory directly from the system, on huge pages if it has them. Plain
// functions; any thread may call them.
// The system clears a page when it is first touched, not before. So memory that is never touched
// costs nothing.
#pragma once

#include <cstddef>

namespace pccl {

inline constexpr size_t kHugePageBytes = 2u << 20;

// Returns `bytes` zero bytes that start at a huge page. Returns null if the system has too little
// memory. REQUIRES: `bytes` is a multiple of kHugePageBytes, above 0.
std::byte* map_pages(size_t bytes);
// Has the same effect as a write to each page, but changes no byte. Does nothing on a system older
// than Linux 5.14.
void prefault(std::byte* memory, size_t bytes);
// Unmaps a series of adjacent huge pages from map_pages(): all pages of a mapping or some of them.
// REQUIRES: `memory` starts a huge page, and `bytes` is a multiple of kHugePageBytes, above 0.
void unmap_pages(std::byte* memory, size_t bytes);

}  // namespace pccl
