#include "master/http/place.h"

#include <algorithm>
#include <charconv>

#include "csrc/base/text.h"

namespace pccl::master::http {
namespace {

constexpr std::string_view kUnix = "unix:", kHere = "127.0.0.1";

Status bad_place(std::string_view text) {
  return {Code::kInvalidArgument,
          "--http is \"" + printable(text) +
              "\", and PORT, ADDRESS:PORT or unix:PATH is needed, for example 8080",
          {}};
}

}  // namespace

Result<Place> parse_place(std::string_view text) {
  if (text.starts_with(kUnix)) {
    const std::string_view path = text.substr(kUnix.size());
    if (path.empty() || path.ends_with('/')) return bad_place(text);
    return Place{.socket = std::string(path)};
  }
  const size_t colon = text.rfind(':');
  const bool alone = colon == std::string_view::npos;
  std::string_view host = alone ? kHere : text.substr(0, colon);
  const std::string_view digits = alone ? text : text.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!bracketed && host.find_first_of(":[]") != std::string_view::npos))
    return bad_place(text);
  Place place{.at = {std::string(host), 0}};
  const char* const end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, place.at.port);
  if (digits.empty() || error != std::errc() || at != end) return bad_place(text);
  return place;
}

Result<std::string> parse_proxy(std::string_view text) {
  std::string host(text);
  for (char& c : host) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  const auto allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '.';
  };
  if (!host.empty() && std::all_of(host.begin(), host.end(), allowed)) return host;
  return Status{Code::kInvalidArgument,
                "--http-behind-proxy is \"" + printable(text) +
                    "\", and the host is needed that browsers ask the proxy for, for example "
                    "pccl.example.org",
                {}};
}

}  // namespace pccl::master::http
