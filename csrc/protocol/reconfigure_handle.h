// reconfigure_handle: the text of a ReconfigureHandle, which is all that other processes need to
// meet a group of this process in a reconfigure. The application carries it from process to
// process, and may log it: it has no secret. It is one line without blanks, and equal handles have
// equal texts:
//   pccl1/HOST/PORT/GROUP/GENERATION        if the handle has no key
//   pccl1/HOST/PORT/GROUP/GENERATION/KEY
// Pure: text in, a value or a refusal out.
#pragma once

#include <string>
#include <string_view>

#include "csrc/base/result.h"
#include "csrc/protocol/rendezvous.h"

namespace pccl::protocol {

std::string text(const ReconfigureHandle& handle);
// kInvalidArgument if the text is not that of a handle. The error repeats at most its beginning.
Result<ReconfigureHandle> parse_handle(std::string_view text);
// For people: "10.0.0.5:41234 (group 5f1c03)".
std::string short_name(const ReconfigureHandle& handle);

}  // namespace pccl::protocol
