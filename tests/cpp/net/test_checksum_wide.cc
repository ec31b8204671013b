#include "csrc/net/checksum_wide.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "csrc/base/cpu.h"
#include "csrc/net/checksum.h"

namespace pccl::net {
namespace {

// Both sides of a connection compute the same, whatever their processors have.
TEST(ChecksumWide, HasTheResultOfTheOrdinaryCode) {
  if (!has_wide_vectors()) GTEST_SKIP() << "SKIPPED: this CPU has no AVX2";
  std::mt19937_64 random{2};
  for (const size_t size : {0u, 1u, 16u, 129u, 240u, 241u, 1023u, 1024u, 1025u, 300'000u}) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    allow_wide_vectors(false);
    const uint32_t ordinary = checksum(bytes);
    allow_wide_vectors(true);
    EXPECT_EQ(static_cast<uint32_t>(hash_wide(bytes.data(), size)), ordinary) << size;
    Checksum begun;  // by the ordinary code, because these bytes are few
    begun.add(std::span(bytes).first(size / 300));
    begun.add(std::span(bytes).subspan(size / 300));
    EXPECT_EQ(begun.value(), ordinary) << size;
  }
}

}  // namespace
}  // namespace pccl::net
