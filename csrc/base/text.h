// text: whether bytes that somebody else chose may be shown to people, and what is shown if not.
// Shown is UTF-8 without control characters and without those that format or hide what stands
// around them: they forge lines of a log, command a terminal, or make one name look like another.
// Names with such characters are refused where they enter; log() escapes them. Pure functions; a
// text of plain ASCII costs one look at each byte. pccl_backend/_settings.py has the same rule.
#pragma once

#include <string>
#include <string_view>

namespace pccl {

bool is_printable(std::string_view text);

// The text with all else escaped: \n, \x1b for a byte, \u202e or \U000e0001 for a character. What
// is printable stays as it is, so that a text may pass here twice.
std::string printable(std::string_view text);

}  // namespace pccl
