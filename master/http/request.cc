#include "master/http/request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace pccl::master::http {
namespace {

constexpr std::string_view kLineEnd = "\r\n", kHeadEnd = "\r\n\r\n";

struct Kept {
  std::string_view name;
  std::string Request::*field;
};
constexpr std::array kKept = {
    Kept{"host", &Request::host},
    Kept{"origin", &Request::origin},
    Kept{"authorization", &Request::authorization},
    Kept{"sec-fetch-site", &Request::fetch_site},
    Kept{"sec-fetch-mode", &Request::fetch_mode},
};

Refusal bad(std::string why) { return {400, std::move(why)}; }

bool is_token(std::string_view text) {  // RFC 9110, section 5.6.2
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

// Removes and returns the part of `text` before `end`, and removes `end`.
std::string_view take(std::string_view& text, std::string_view end) {
  const std::string_view part = text.substr(0, text.find(end));
  text.remove_prefix(std::min(text.size(), part.size() + end.size()));
  return part;
}

// Removes the percent-encoding. Returns nothing if it is damaged.
std::optional<std::string> decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i] == '+' && plus_is_space ? ' ' : text[i];
    if (text[i] != '%') continue;
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text.size() - i < 3 || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
      return std::nullopt;
    out.back() = static_cast<char>(byte);
    i += 2;
  }
  return out;
}

std::optional<Refusal> read_target(std::string_view target, Request& request) {
  const auto is_shown = [](char c) { return c > ' ' && c < '\x7f' && c != '#'; };
  if (!target.starts_with('/') || !std::all_of(target.begin(), target.end(), is_shown))
    return bad("the target must be a path, for example /run/NAME");
  const auto path = decoded(take(target, "?"), false);
  if (!path) return bad("the percent-encoding of the path is damaged");
  request.path = *path;
  while (!target.empty()) {
    std::string_view value = take(target, "&");
    const auto name = decoded(take(value, "="), true), text = decoded(value, true);
    if (!name || !text) return bad("the percent-encoding of the query is damaged");
    if (!request.query.emplace(*name, *text).second) return bad("a name is twice in the query");
  }
  return std::nullopt;
}

std::optional<Refusal> read_line(std::string_view line, Request& request) {
  const std::string_view method = take(line, " "), target = take(line, " ");
  if (!is_token(method) || !line.starts_with("HTTP/"))
    return bad("the first line must be GET PATH HTTP/1.1");
  if (method != "GET") return Refusal{405, "only GET is served: nothing can be changed here"};
  if (line != "HTTP/1.1" && line != "HTTP/1.0")
    return Refusal{505, "only HTTP/1.0 and HTTP/1.1 are served"};
  return read_target(target, request);
}

std::optional<Refusal> read_header(std::string_view line, Request& request) {
  if (line.find(':') == std::string_view::npos) return bad("a header has no colon");
  std::string name(take(line, ":"));
  if (!is_token(name)) return bad("the name of a header has a character that is not allowed");
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  const size_t first = line.find_first_not_of(" \t"), last = line.find_last_not_of(" \t");
  const std::string_view value =
      first == std::string_view::npos ? "" : line.substr(first, last - first + 1);
  const auto is_control = [](unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7f; };
  if (std::any_of(value.begin(), value.end(), is_control))
    return bad("a header has a control character");
  if (name == "transfer-encoding" || (name == "content-length" && value != "0"))
    return bad("a GET has no body here");
  const auto kept =
      std::find_if(kKept.begin(), kKept.end(), [&](const Kept& one) { return one.name == name; });
  if (kept == kKept.end()) return std::nullopt;
  std::string& field = request.*kept->field;
  if (!field.empty()) return bad("the header " + name + " is there twice");
  field = value;
  return std::nullopt;
}

// `head`: all lines, each with its end.
RequestParser::Parsed parse(std::string_view head) {
  Request request;
  if (const auto refused = read_line(take(head, kLineEnd), request)) return *refused;
  for (size_t count = 1; !head.empty(); ++count) {
    if (count > kHeadersMax) return Refusal{431, "there are more than 64 headers"};
    if (const auto refused = read_header(take(head, kLineEnd), request)) return *refused;
  }
  if (request.host.empty()) return bad("the header Host is missing");
  return request;
}

}  // namespace

// The result must not depend on the pieces. So the sizes are checked before anything else, and an
// end that has not arrived yet counts as being at the earliest place where it can be.
std::optional<RequestParser::Parsed> RequestParser::feed(std::string_view bytes) {
  const size_t before = head_.size();
  head_.append(bytes.substr(0, kHeadBytesMax - before));
  const size_t line_end = head_.find(kLineEnd);
  const size_t line = std::min(line_end, head_.size() - head_.ends_with('\r'));
  if (line > kLineBytesMax) return Refusal{414, "the first line is longer than 2048 bytes"};
  if (line_end == std::string::npos) return std::nullopt;
  const size_t head_end = head_.find(kHeadEnd, before < 3 ? 0 : before - 3);
  const size_t end = std::min(head_end, head_.size() < 3 ? 0 : head_.size() - 3);
  if (end > line + kHeaderBytesMax) return Refusal{431, "the headers have more than 8192 bytes"};
  if (head_end == std::string::npos) return std::nullopt;
  return parse(std::string_view(head_).substr(0, head_end + kLineEnd.size()));
}

}  // namespace pccl::master::http
