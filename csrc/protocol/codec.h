// codec: turns control messages into bytes and back. On the wire a message is
//   u32 length of the rest | u16 type | fields in the order of fields.h
// Integers are little-endian. A u32 count precedes each text and each list. Pure functions and
// values: any thread may use them, but only one thread at a time may use a Decoder.
// Invariants:
// 1. Decoding trusts no input: every count is checked against limits.h and against the number of
//    bytes present before anything is allocated, and enumerators are range-checked.
// 2. Bytes after the last field that this version knows are ignored, since a later version may add
//    fields there.
// Failure: the Status of a refused message names the message and the fault. The caller closes the
// connection that the message came from.
// Other versions: a Hello or Resume whose `versions` have none in common with ours decodes to a
// message with only `magic` and `versions` filled in, so that a Reject that names the versions of
// both sides can answer it. An unknown code in a Reject becomes kProtocol.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/result.h"
#include "csrc/protocol/messages.h"

namespace pccl::protocol {

// Appends the framed message to `out`. Texts for people are cut to kTextBytesMax.
// REQUIRES: the message keeps every other limit, including kMessageBytesMax for the whole message.
void encode(const Message& message, std::vector<std::byte>& out);

// Returns the number of bytes that encode() appends.
size_t encoded_bytes(const Message& message);

// Decodes one message without its length prefix (type and fields).
Result<Message> decode(std::span<const std::byte> frame);

// Cuts a byte stream into messages. Holds at most one incomplete message when next() needs more
// bytes.
class Decoder {
 public:
  // Takes all of `bytes`.
  void feed(std::span<const std::byte> bytes);
  // Returns the next complete message, nullopt if more bytes are needed, or the reason why the
  // stream is refused (from then on, always).
  Result<std::optional<Message>> next();
  // The number of bytes that wait for the rest of their message.
  size_t held() const {
    PCCL_DCHECK(at_ <= buffer_.size());
    return buffer_.size() - at_;
  }

 private:
  std::vector<std::byte> buffer_;
  size_t at_ = 0;
  Status refused_;
};

// The name of a message, for transcripts and error texts: "Begin".
const char* name(const Message& message);

}  // namespace pccl::protocol
