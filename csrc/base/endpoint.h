// Endpoint: where somebody listens: a name or a numeric address, and a port.
#pragma once

#include <cstdint>
#include <string>

namespace pccl {

struct Endpoint {
  std::string host;
  uint16_t port = 0;
  bool operator==(const Endpoint&) const = default;
};
// "host:port", "[v6]:port".
std::string text(const Endpoint& endpoint);

}  // namespace pccl
