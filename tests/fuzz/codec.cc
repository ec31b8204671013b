// Fuzzes the decoder of control messages with any bytes, in pieces of any size. A message that
// decodes must encode again and decode to the same message.
#include "csrc/protocol/codec.h"

#include "tests/fuzz/fuzz.h"

namespace pccl::fuzz {
namespace {

void rtt(const protocol::Message& message) {
  std::vector<std::byte> bytes;
  protocol::encode(message, bytes);
  const auto again = protocol::decode(std::span<const std::byte>(bytes).subspan(4));
  require(again.ok(), "what was read can be read again");
}

void in_pieces(std::span<const uint8_t> bytes) {
  protocol::Decoder decoder;
  size_t piece = 1;
  while (!bytes.empty()) {
    piece = 1 + (piece * 7 + bytes[0]) % 900;
    const auto part = bytes.first(std::min(piece, bytes.size()));
    decoder.feed(std::as_bytes(part));
    bytes = bytes.subspan(part.size());
    for (;;) {
      auto next = decoder.next();
      if (!next.ok()) return require(decoder.held() == 0, "a refused stream is not kept");
      if (!next.value()) break;
      rtt(*next.value());
    }
  }
}

}  // namespace
}  // namespace pccl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto message = pccl::protocol::decode(pccl::fuzz::as_bytes(data, size));
  if (message.ok()) pccl::fuzz::rtt(message.value());
  pccl::fuzz::in_pieces({data, size});
  return 0;
}
