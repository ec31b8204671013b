#include "csrc/base/prefaulter.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "csrc/base/pages.h"

namespace pccl {
namespace {

constexpr size_t kPages = 16;
constexpr auto kLong = std::chrono::seconds(20);

class Mapping {
 public:
  Mapping() : start_(map_pages(kPages * kHugePageBytes)) {}
  ~Mapping() { unmap_pages(start_, kPages * kHugePageBytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::span<std::byte> pages(size_t first, size_t count) const {
    return {start_ + first * kHugePageBytes, count * kHugePageBytes};
  }
  // The number of resident huge pages among `pages` pages from `from` on.
  size_t resident(size_t from = 0, size_t pages = kPages) const {
    std::vector<unsigned char> small(kPages * kHugePageBytes / 4096);
    EXPECT_EQ(mincore(start_, kPages * kHugePageBytes, small.data()), 0);
    size_t count = 0;
    for (size_t page = from; page < from + pages; ++page) {
      const auto first = small.begin() + static_cast<ptrdiff_t>(page * kHugePageBytes / 4096);
      const auto last = first + static_cast<ptrdiff_t>(kHugePageBytes / 4096);
      count += std::all_of(first, last, [](unsigned char one) { return (one & 1) != 0; }) ? 1 : 0;
    }
    return count;
  }
  bool becomes_resident(size_t count) const {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (resident() < count && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return resident() == count;
  }

 private:
  std::byte* const start_;
};

TEST(Prefaulter, TouchesAllPagesAndLeavesWhatIsWritten) {
  const Mapping mapping;
  EXPECT_EQ(mapping.resident(), 0u);
  Prefaulter prefaulter;
  mapping.pages(5, 1)[7] = std::byte{42};
  prefaulter.add(mapping.pages(0, kPages));
  mapping.pages(kPages - 1, 1)[7] = std::byte{43};
  EXPECT_TRUE(mapping.becomes_resident(kPages));
  EXPECT_EQ(mapping.pages(5, 1)[7], std::byte{42});
  EXPECT_EQ(mapping.pages(kPages - 1, 1)[7], std::byte{43});
}

TEST(Prefaulter, LeavesAloneWhatItIsToForget) {
  const Mapping mapping;
  const Mapping other;
  Prefaulter prefaulter;
  prefaulter.add(mapping.pages(0, kPages));
  prefaulter.forget(mapping.pages(4, 8));
  const size_t before = mapping.resident(4, 8);
  prefaulter.add(other.pages(0, kPages));  // queued behind the rest of the first mapping
  EXPECT_TRUE(other.becomes_resident(kPages));
  EXPECT_EQ(mapping.resident(4, 8), before);
  EXPECT_EQ(mapping.resident(0, 4), 4u);
  EXPECT_EQ(mapping.resident(12, 4), 4u);
}

TEST(Prefaulter, CanEndInTheMiddle) {
  const Mapping mapping;
  for (int i = 0; i < 20; ++i) {
    Prefaulter prefaulter;
    prefaulter.add(mapping.pages(0, kPages));
  }
}

TEST(Prefaulter, ForgottenMemoryCanBeUnmapped) {
  Prefaulter prefaulter;
  for (int i = 0; i < 50; ++i) {
    const Mapping mapping;
    prefaulter.add(mapping.pages(0, kPages));
    prefaulter.forget(mapping.pages(0, kPages));
    EXPECT_LE(mapping.resident(), kPages);
  }
}

}  // namespace
}  // namespace pccl
