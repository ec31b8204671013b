// codec: control messages as bytes and back. On the wire a message is
//   u32 length of what follows | u16 type | fields in the order of messages.h
// little-endian; text and lists carry a u32 count first. Pure functions, any thread.
// Decoding trusts nothing: every count is checked against limits.h and against the bytes that are
// there before anything is allocated, and enumerators are range-checked. The Status of a refused
// message says which message and what was wrong; the connection it came from is closed.
// Other versions: bytes after the last field that we know are ignored, since a later version may
// say more there. A Hello or Resume whose `versions` have none in common with ours decodes to one
// with only `magic` and `versions` filled in, so that it can be answered with a Reject that names
// both; a Reject's code that we do not know becomes kProtocol.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/protocol/messages.h"

namespace pccl::protocol {

// Appends the framed message to `out`. Texts for people are cut to kTextBytesMax.
// REQUIRES: the message keeps every other limit, kMessageBytesMax for the whole of it included.
void encode(const Message& message, std::vector<std::byte>& out);

// How many bytes that appends.
size_t encoded_bytes(const Message& message);

// Decodes one message without its length prefix (type and fields).
Result<Message> decode(std::span<const std::byte> frame);

// Cuts a byte stream into messages. Holds at most one incomplete message.
class Decoder {
 public:
  // Takes all of `bytes`.
  void feed(std::span<const std::byte> bytes);
  // The next complete message, nullopt if more bytes are needed, or why the stream is refused (then
  // for ever).
  Result<std::optional<Message>> next();
  // Bytes that wait for the rest of their message.
  size_t held() const { return buffer_.size() - at_; }

 private:
  std::vector<std::byte> buffer_;
  size_t at_ = 0;
  Status refused_;
};

// The name of a message, for transcripts and error texts: "Begin".
const char* name(const Message& message);

}  // namespace pccl::protocol
