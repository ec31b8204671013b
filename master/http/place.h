// place: where a master serves its pages, as the value of `--http`: [ADDRESS:]PORT or unix:PATH.
// Pure.
#pragma once

#include <string>
#include <string_view>

#include "csrc/base/endpoint.h"
#include "csrc/base/result.h"

namespace pccl::master::http {

struct Place {
  Endpoint at = {};         // if `socket` is empty
  std::string socket = {};  // the path of a Unix socket
  bool operator==(const Place&) const = default;
};

// A port alone is on 127.0.0.1. Fails with kInvalidArgument and a text that begins with "--http".
Result<Place> parse_place(std::string_view text);

// The name in a Host header, as the value of `--http-behind-proxy`: in small letters, without a
// port. Fails with kInvalidArgument and a text that begins with "--http-behind-proxy".
Result<std::string> parse_proxy(std::string_view text);

}  // namespace pccl::master::http
