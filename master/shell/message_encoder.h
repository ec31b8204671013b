// MessageEncoder: encodes the messages of a master. The members of a group often get the same
// message, one after another. A large message, such as the list of a large shared state, takes long
// to encode, so it is encoded once for all of them. The Shell owns it.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "csrc/protocol/codec.h"

namespace pccl::master {

class MessageEncoder {
 public:
  // The result is valid until the next call.
  const std::vector<std::byte>& bytes_of(const protocol::Message& message) {
    if (last_large_ != message) {
      encoded_.clear();
      protocol::encode(message, encoded_);
      last_large_.reset();
      if (encoded_.size() >= kLargeBytes) last_large_ = message;
    }
    return encoded_;
  }

 private:
  // A smaller message is encoded for each receiver.
  static constexpr size_t kLargeBytes = 64u << 10;

  std::vector<std::byte> encoded_;               // the last message
  std::optional<protocol::Message> last_large_;  // that message, if it is large
};

}  // namespace pccl::master
