// text: decides whether bytes from outside may be shown to people, and escapes them if not.
// Printable text is UTF-8 without control characters and without characters that format or hide the
// text around them. Such characters can forge a log line, control a terminal, or make one name look
// like another. Names that contain them are refused where they enter pccl; log() escapes them.
// Pure functions. Plain ASCII text costs one comparison per byte. pccl_backend/_settings.py has the
// same rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pccl {

bool is_printable(std::string_view text);
// Whether the text has this number of hexadecimal digits, lowercase, and nothing else.
bool is_hexadecimal(std::string_view text, size_t digits);

// Returns `text` with everything unprintable escaped: a line end as \n, a byte as \x1b, a character
// as \u202e or \U000e0001. Printable text stays as it is, so a second call changes nothing.
std::string printable(std::string_view text);

// Returns the longest prefix of `text` that has at most `bytes_max` bytes and does not end inside a
// UTF-8 character.
std::string_view cut(std::string_view text, size_t bytes_max);

// "1 member", "3 members".
std::string count_text(uint64_t count, std::string_view what);

}  // namespace pccl
