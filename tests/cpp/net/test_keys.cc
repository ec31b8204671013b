#include "csrc/net/keys.h"

#include <gtest/gtest.h>

#include <new>
#include <numeric>
#include <vector>

namespace pccl::net {
namespace {

// The bytes 00 01 02 ... 1f.
std::vector<std::byte> counted(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

Key accepting_key() {
  Key key;
  std::ranges::copy(counted(32), key.bytes.begin());
  return key;
}

LaneIdentity some_identity() {
  LaneIdentity identity{PeerId{0x65a1000000000003}, PeerId{0x65a1000000000001}, {}};
  std::ranges::copy(counted(16), identity.nonce.begin());
  return identity;
}

template <typename Range>
std::string hex(const Range& bytes) {
  std::string out;
  for (const auto byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    out += kDigits[static_cast<unsigned char>(byte) >> 4];
    out += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return out;
}

// The expected keys were computed with Python:
//   def hkdf(secret, info):
//       sha256, hmac_of = hashlib.sha256, lambda key, text: hmac.new(key, text, sha256).digest()
//       return hmac_of(hmac_of(bytes(32), secret), info + b"\1").hex()
//   identity = struct.pack("<QQ", 0x65a1000000000003, 0x65a1000000000001) + bytes(range(16))
//   hkdf(bytes(range(32)), b"pccl control")
//   hkdf(bytes(range(32)), b"pccl lane" + struct.pack("<Q", 0x1122334455667788) + identity)
TEST(Keys, AreTheOnesThatAreDocumented) {
  EXPECT_EQ(hex(control_key(counted(32)).bytes),
            "6ec8d6c528c4a1711ea2a47eb750868cfcc59a04b86882e38acd76f311e90711");
  EXPECT_EQ(hex(lane_key(accepting_key(), 0x1122334455667788, some_identity()).bytes),
            "ba4f5aa0390e7a1fb0f296b911bff6cac0bfffe33889d8093c3c811feff55e85");
}

TEST(Keys, EachInputOfALaneKeyCounts) {
  const LaneIdentity identity = some_identity();
  const auto key = [](const Key& of, uint64_t run, const LaneIdentity& named) {
    return lane_key(of, run, named).bytes;
  };
  const auto expected = key(accepting_key(), 1, identity);
  EXPECT_EQ(key(accepting_key(), 1, identity), expected);
  Key other_key = accepting_key();
  other_key.bytes[31] ^= std::byte{1};
  EXPECT_NE(key(other_key, 1, identity), expected);
  EXPECT_NE(key(accepting_key(), 2, identity), expected);
  LaneIdentity turned{identity.acceptor, identity.dialler, identity.nonce};
  EXPECT_NE(key(accepting_key(), 1, turned), expected);
  LaneIdentity again = identity;
  again.nonce[15] ^= std::byte{1};
  EXPECT_NE(key(accepting_key(), 1, again), expected);
}

TEST(Keys, AnIdentityHasTheDocumentedBytes) {
  const std::string bytes = encode(some_identity());
  EXPECT_EQ(hex(bytes), "030000000000a165010000000000a165000102030405060708090a0b0c0d0e0f");
  EXPECT_EQ(decode_lane_identity(bytes), some_identity());
}

TEST(Keys, OtherBytesAreNoIdentity) {
  const std::string bytes = encode(some_identity());
  EXPECT_EQ(decode_lane_identity(""), std::nullopt);
  EXPECT_EQ(decode_lane_identity(bytes.substr(1)), std::nullopt);
  EXPECT_EQ(decode_lane_identity(bytes + '\0'), std::nullopt);
  const PeerId one{1}, two{2}, none{};
  EXPECT_NE(decode_lane_identity(encode(LaneIdentity{one, two, {}})), std::nullopt);
  EXPECT_EQ(decode_lane_identity(encode(LaneIdentity{one, none, {}})), std::nullopt);
  EXPECT_EQ(decode_lane_identity(encode(LaneIdentity{none, two, {}})), std::nullopt);
  EXPECT_EQ(decode_lane_identity(encode(LaneIdentity{one, one, {}})), std::nullopt);
}

TEST(Keys, AKeyWipesItsMemory) {
  alignas(Key) std::byte memory[sizeof(Key)];
  Key* const key = new (memory) Key(accepting_key());
  EXPECT_EQ(hex(memory), hex(counted(32)));
  key->~Key();
  EXPECT_EQ(hex(memory), std::string(64, '0'));
}

}  // namespace
}  // namespace pccl::net
