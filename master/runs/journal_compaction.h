// journal_compaction: when a journal that is open is written anew, as a short file with the same
// content (journal::compact() in journal.h). At its opening it always is. A pure function.
#pragma once

#include <cstddef>

namespace pccl::master::journal {

// A smaller file stays as it is.
inline constexpr size_t kCompactionBytesMin = 1u << 20;
inline constexpr size_t kGrowthMax = 4;

// `bytes`: of the file. `bytes_compacted`: of the file when it was last written anew.
inline bool needs_compaction(size_t bytes, size_t bytes_compacted) {
  return bytes > kCompactionBytesMin && bytes > kGrowthMax * bytes_compacted;
}

}  // namespace pccl::master::journal
