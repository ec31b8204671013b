#include "csrc/base/text.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>

#include "csrc/base/assert.h"

namespace pccl {
namespace {

struct Range {
  uint32_t first, last;
};

// Unprintable characters of Unicode, sorted: control characters; marks that reorder, join, hide or
// annotate the characters around them; ends of lines and paragraphs; tags.
constexpr Range kHidden[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},       {0x61c, 0x61c},
    {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f},
    {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f},
};

bool is_hidden(uint32_t code) {
  const auto* at = std::lower_bound(std::begin(kHidden), std::end(kHidden), code,
                                    [](const Range& r, uint32_t value) { return r.last < value; });
  return at != std::end(kHidden) && at->first <= code;
}

bool is_plain(char letter) { return letter >= ' ' && letter <= '~'; }

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: invalid UTF-8
};

// The first character of `text`. REQUIRES: `text` is not empty.
Character first_of(std::string_view text) {
  PCCL_DCHECK(!text.empty());
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<uint8_t>(text[i]);
    if ((next & 0xc0) != 0x80) return {};
    code = code << 6 | (next & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // a smaller code has a shorter form
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

std::string escaped(uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  char out[12];
  const char* form = code < 0x80 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(out, sizeof out, form, code);
  return out;
}

std::string escaped_byte(char letter) {
  char out[8];
  std::snprintf(out, sizeof out, "\\x%02x", static_cast<unsigned>(static_cast<uint8_t>(letter)));
  return out;
}

// The number of printable bytes at the beginning of `text`.
size_t printable_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (is_plain(text[at])) {
      ++at;
      continue;
    }
    const Character next = first_of(text.substr(at));
    if (next.bytes == 0 || is_hidden(next.code)) return at;
    at += next.bytes;
  }
  return at;
}

}  // namespace

bool is_hexadecimal(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

bool is_printable(std::string_view text) { return printable_bytes(text) == text.size(); }

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (;;) {
    const size_t good = printable_bytes(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) return out;
    const Character bad = first_of(text);
    PCCL_DCHECK(bad.bytes == 0 || is_hidden(bad.code));
    out += bad.bytes == 0 ? escaped_byte(text[0]) : escaped(bad.code);
    text.remove_prefix(std::max<size_t>(bad.bytes, 1));
  }
}

std::string_view cut(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t length = bytes_max;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;
  return text.substr(0, length);
}

std::string count_text(uint64_t count, std::string_view what) {
  return std::to_string(count) + " " + std::string(what) + (count == 1 ? "" : "s");
}

}  // namespace pccl
