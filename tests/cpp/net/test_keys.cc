#include "csrc/net/keys.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <set>
#include <string>
#include <vector>

namespace pccl::net {
namespace {

// The bytes 00 01 02 ... 1f.
std::vector<std::byte> counted(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

protocol::Key seed() {
  protocol::Key key;
  std::memcpy(key.words.data(), counted(32).data(), 32);
  return key;
}

const PeerId kDialler{(uint64_t{1} << 32) | 2}, kAcceptor{(uint64_t{1} << 32) | 3};
const protocol::LaneIdentity kIdentity{kDialler, kAcceptor, 1, 7};

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
//       return hmac_of(hmac_of(bytes(32), secret), info + b"\1")
//   identity = struct.pack("<QQIQ", 1 << 32 | 2, 1 << 32 | 3, 1, 7)
//   hkdf(bytes(range(32)), b"pccl control"), and so on for b"pccl probe" and b"pccl http"
//   accepting = hkdf(bytes(range(32)), b"pccl accepting" + struct.pack("<Q", 1 << 32 | 3))
//   hkdf(accepting, b"pccl lane" + struct.pack("<Q", 77) + identity)
TEST(Keys, AreTheOnesThatAreDocumented) {
  EXPECT_EQ(hex(control_key(counted(32)).bytes),
            "6ec8d6c528c4a1711ea2a47eb750868cfcc59a04b86882e38acd76f311e90711");
  EXPECT_EQ(hex(probe_key(counted(32)).bytes),
            "e7708e901f3942357305ee30fc974701bd417976f8d10f7ab26707553ebc902e");
  EXPECT_EQ(hex(http_key(counted(32)).bytes),
            "b178a41dbe3f64bfb9a71e67cbd148183813d2ebfeaebed9a0502f414a3c9b28");
  const protocol::Key accepting = accepting_key(seed(), kAcceptor);
  EXPECT_EQ(hex(Key(accepting).bytes),
            "2d23a6b28c0b733b8bbf5b366382fffd5baab6e1d9b439f033fd215d3b169bc9");
  EXPECT_EQ(hex(Key(lane_key(accepting, 77, kIdentity)).bytes),
            "5b7c3e5dd24ac21fd2ceeab6ecd72f658b391e9050ff4ae44273f4327b0c8623");
}

TEST(Keys, EachInputCounts) {
  std::set<std::string> keys;
  const auto note = [&keys](const protocol::Key& key) { keys.insert(hex(Key(key).bytes)); };
  const protocol::Key accepting = accepting_key(seed(), kAcceptor);
  note(accepting);
  note(accepting_key(seed(), kDialler));
  note(accepting_key(accepting, kAcceptor));
  std::vector<protocol::LaneIdentity> identities(5, kIdentity);
  identities[1].dialler = PeerId{7};
  identities[2].acceptor = PeerId{7};
  identities[3].incarnation = 2;
  identities[4].number = 8;
  for (const auto& one : identities) note(lane_key(accepting, 77, one));
  note(lane_key(accepting, 78, kIdentity));
  note(lane_key(seed(), 77, kIdentity));
  EXPECT_EQ(keys.size(), 10u);
}

TEST(Keys, AnIntroductionHasTheDocumentedBytes) {
  const protocol::LaneIntroduction introduction{kIdentity, 9, true};
  const std::string bytes = encode(introduction);
  EXPECT_EQ(hex(bytes),
            "02000000010000000300000001000000010000000700000000000000"
            "0900000001");
  EXPECT_EQ(decode_lane_introduction(bytes), introduction);
}

TEST(Keys, OtherBytesAreNoIntroduction) {
  const std::string bytes = encode(protocol::LaneIntroduction{kIdentity, 9});
  EXPECT_EQ(decode_lane_introduction(""), std::nullopt);
  EXPECT_EQ(decode_lane_introduction(bytes.substr(1)), std::nullopt);
  EXPECT_EQ(decode_lane_introduction(bytes + '\0'), std::nullopt);
  EXPECT_EQ(decode_lane_introduction(bytes.substr(0, bytes.size() - 1) + '\2'), std::nullopt);
  const auto of = [](PeerId dialler, PeerId acceptor) {
    return decode_lane_introduction(encode(protocol::LaneIntroduction{{dialler, acceptor}}));
  };
  const PeerId one{1}, two{2}, none{};
  EXPECT_NE(of(one, two), std::nullopt);
  EXPECT_EQ(of(one, none), std::nullopt);
  EXPECT_EQ(of(none, two), std::nullopt);
  EXPECT_EQ(of(one, one), std::nullopt);
}

// The value is the test vector of the SipHash paper, appendix A. The key changes and comes back.
TEST(Keys, AMacIsASipHash) {
  std::array<std::byte, 15> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i);
  const protocol::Key paper{{0x0706050403020100, 0x0f0e0d0c0b0a0908, 3, 4}};
  const protocol::Key other{{0x0706050403020100, 0x1f0e0d0c0b0a0908, 3, 4}};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(mac(paper, bytes), 0xa129ca6149be45e5u);
    EXPECT_EQ(mac(paper, bytes), 0xa129ca6149be45e5u);
    EXPECT_NE(mac(other, bytes), 0xa129ca6149be45e5u);
  }
}

TEST(Keys, AKeyWipesItsMemory) {
  alignas(Key) std::byte memory[sizeof(Key)];
  Key* const key = new (memory) Key(seed());
  EXPECT_EQ(hex(memory), hex(counted(32)));
  key->~Key();
  EXPECT_EQ(hex(memory), std::string(64, '0'));
}

}  // namespace
}  // namespace pccl::net
