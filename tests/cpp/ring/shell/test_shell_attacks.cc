// Hostile handshakes with the port of a peer of a secured run.
#include <gtest/gtest.h>

#include <future>

#include "csrc/net/keys.h"
#include "csrc/ring/shell/shell.h"
#include "tests/cpp/net/tls_listener.h"
#include "tests/cpp/ring/raw_peer.h"

namespace pccl::ring {
namespace {

namespace forge = net::forge;

bool is_hello_ok(const net::Bytes& answer) {
  net::HeaderBytes bytes;
  if (answer.size() < bytes.size()) return false;
  std::copy_n(answer.begin(), bytes.size(), bytes.begin());
  Result<net::FrameHeader> header = net::decode_header(bytes);
  return header.ok() && header.value().type == net::FrameType::kHelloOk;
}

TEST(ShellAttacks, NoneGetsInAndNoneIsLeft) {
  std::promise<Result<uint16_t>> listening;
  Shell::Callbacks callbacks{};
  callbacks.on_listening = [&](Result<uint16_t> port) { listening.set_value(std::move(port)); };
  callbacks.on_link = [](const protocol::LinkReport&) {};
  Shell shell({}, std::move(callbacks));
  const PeerId self{2}, other{1};
  const protocol::AcceptingKey accepting{3, {{1, 2, 3, 4}}};
  shell.accept_as(self, kRun, protocol::kSpoken.highest, accepting);
  shell.listen("127.0.0.1");
  Result<uint16_t> port = listening.get_future().get();
  ASSERT_TRUE(port.ok());
  const protocol::LaneIdentity identity{other, self, accepting.incarnation, 1};
  auto header = RawPeer::hello(net::FrameType::kHello, other, self, kRun);
  const auto hello = [&] {
    const net::HeaderBytes bytes = net::encode_header(header);
    return net::Bytes(bytes.begin(), bytes.end());
  };
  // A serial number is good until a proof for it was completed.
  const auto renew = [&] {
    header.block += 2;
    forge::shown = {net::encode(protocol::LaneIntroduction{identity, header.block}),
                    net::Key(net::lane_key(accepting.key, kRun, identity))};
  };
  constexpr size_t kSealedHelloBytes = 5 + sizeof(net::HeaderBytes) + 1 + 16;  // a record
  forge::withstands({.port = port.value(),
                     .plain_answer = "",
                     .said = hello,
                     .is_right = is_hello_ok,
                     .renew = renew,
                     .early_bytes = kSealedHelloBytes});
  forge::shown = {};
}

}  // namespace
}  // namespace pccl::ring
