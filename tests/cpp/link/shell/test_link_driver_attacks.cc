// Hostile handshakes with the port of a peer of a secured run.
#include <gtest/gtest.h>

#include "csrc/net/keys.h"
#include "tests/cpp/net/tls_listener.h"
#include "tests/cpp/ring/member.h"

namespace pccl::link::shell_test {
namespace {

namespace forge = net::forge;

bool is_hello_ok(const net::Bytes& answer) {
  net::HeaderBytes bytes;
  if (answer.size() < bytes.size()) return false;
  std::copy_n(answer.begin(), bytes.size(), bytes.begin());
  Result<net::FrameHeader> header = net::decode_header(bytes);
  return header.ok() && header.value().type == net::FrameType::kHelloOk;
}

TEST(LinkDriverAttacks, NoneGetsInAndNoneIsLeft) {
  const PeerId self{2}, other{1};
  const protocol::AcceptingKey accepting{3, {{1, 2, 3, 4}}};
  ring::Member member(1, {}, accepting);
  ASSERT_TRUE(member.listening().ok());
  const protocol::LaneIdentity identity{other, self, accepting.incarnation, 1};
  auto header = ring::RawPeer::hello(net::FrameType::kHello, other, self, ring::kRun);
  const auto hello = [&] {
    const net::HeaderBytes bytes = net::encode_header(header);
    return net::Bytes(bytes.begin(), bytes.end());
  };
  // A serial number is good until a proof for it was completed.
  const auto renew = [&] {
    header.block += 2;
    forge::shown = {net::encode(protocol::LaneIntroduction{identity, header.block}),
                    net::Key(net::lane_key(accepting.key, ring::kRun, identity))};
  };
  constexpr size_t kSealedHelloBytes = 5 + sizeof(net::HeaderBytes) + 1 + 16;  // a record
  forge::withstands({.port = member.port(),
                     .plain_answer = "",
                     .said = hello,
                     .is_right = is_hello_ok,
                     .renew = renew,
                     .early_bytes = kSealedHelloBytes});
  forge::shown = {};
}

}  // namespace
}  // namespace pccl::link::shell_test
