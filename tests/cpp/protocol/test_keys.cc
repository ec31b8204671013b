#include "csrc/protocol/keys.h"

#include <gtest/gtest.h>

#include <set>

namespace pccl::protocol {
namespace {

const PeerId kDialler{(uint64_t{1} << 32) | 2}, kAcceptor{(uint64_t{1} << 32) | 3};
const LaneIdentity kIdentity{kDialler, kAcceptor, 1, 7};

// The bytes 0, 1, 2 and so on.
Key seed() {
  std::array<std::byte, kKeyBytes> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  return key_of(bytes);
}

std::string hex(const Key& key) {
  std::string out;
  for (const std::byte byte : bytes_of(key)) {
    constexpr const char* kDigits = "0123456789abcdef";
    out += kDigits[std::to_integer<int>(byte) / 16];
    out += kDigits[std::to_integer<int>(byte) % 16];
  }
  return out;
}

// From Python: HMAC(HMAC(32 zeros, key), info + b"\x01") with SHA-256, which is HKDF for 32 bytes.
TEST(Keys, AreFixed) {
  const Key accepting = accepting_key(seed(), kAcceptor);
  EXPECT_EQ(hex(accepting), "2d23a6b28c0b733b8bbf5b366382fffd5baab6e1d9b439f033fd215d3b169bc9");
  EXPECT_EQ(hex(lane_key(accepting, 77, kIdentity)),
            "5b7c3e5dd24ac21fd2ceeab6ecd72f658b391e9050ff4ae44273f4327b0c8623");
}

TEST(Keys, EachPartCounts) {
  std::set<std::string> keys;
  const Key accepting = accepting_key(seed(), kAcceptor);
  keys.insert(hex(accepting));
  keys.insert(hex(accepting_key(seed(), kDialler)));
  keys.insert(hex(accepting_key(accepting, kAcceptor)));
  std::vector<LaneIdentity> identities(5, kIdentity);
  identities[1].dialler = kAcceptor;
  identities[2].acceptor = kDialler;
  identities[3].incarnation = 2;
  identities[4].number = 8;
  for (const LaneIdentity& one : identities) keys.insert(hex(lane_key(accepting, 77, one)));
  keys.insert(hex(lane_key(accepting, 78, kIdentity)));
  EXPECT_EQ(keys.size(), 9u);
}

TEST(Keys, AnIdentityTravelsAsText) {
  const std::string text = encode(kIdentity);
  EXPECT_EQ(decode_lane_identity(text), kIdentity);
  EXPECT_EQ(decode_lane_identity(text + "x"), std::nullopt);
  EXPECT_EQ(decode_lane_identity(text.substr(1)), std::nullopt);
  EXPECT_EQ(decode_lane_identity(""), std::nullopt);
}

}  // namespace
}  // namespace pccl::protocol
