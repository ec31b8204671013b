// request: reads one request of HTTP/1.0 or 1.1. Only GET is served, so a request has no body, and
// ends with its headers. Bytes in, a value or a refusal out. It is pure.
// Invariant: however the bytes are cut into pieces, the result is the same, and at most
// kHeadBytesMax bytes are kept.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace pccl::master::http {

inline constexpr size_t kLineBytesMax = 2048;    // of the first line
inline constexpr size_t kHeaderBytesMax = 8192;  // of all headers together
inline constexpr size_t kHeadersMax = 64;
inline constexpr size_t kHeadBytesMax = kLineBytesMax + kHeaderBytesMax + 4;  // with two line ends

struct Request {
  std::string path;                          // without percent-encoding
  std::map<std::string, std::string> query;  // likewise
  // Headers; empty: absent.
  std::string host, origin, authorization, fetch_site, fetch_mode;
};

// The status of the answer, and the reason as a sentence.
struct Refusal {
  int status = 0;
  std::string why;
};

class RequestParser {
 public:
  using Parsed = std::variant<Request, Refusal>;
  // Takes the next bytes of a connection. Returns nothing until the headers are complete. Bytes
  // after them are ignored. REQUIRES: it has not returned a result yet.
  std::optional<Parsed> feed(std::string_view bytes);

 private:
  std::string head_;
};

}  // namespace pccl::master::http
