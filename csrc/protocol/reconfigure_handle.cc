#include "csrc/protocol/reconfigure_handle.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/protocol/limits.h"

namespace pccl::protocol {
namespace {

constexpr std::string_view kPrefix = "pccl1";
constexpr size_t kShownDigits = 6;
constexpr size_t kShownBytes = 64;  // of a text that is no handle

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The whole text as a number without a sign or zeros in front.
template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || std::to_string(number) != text) return std::nullopt;
  return number;
}

}  // namespace

std::string text(const ReconfigureHandle& handle) {
  return std::string(kPrefix) + "/" + handle.at.host + "/" + std::to_string(handle.at.port) + "/" +
         handle.group + "/" + std::to_string(handle.generation) +
         (handle.key.empty() ? "" : "/" + handle.key);
}

Result<ReconfigureHandle> parse_handle(std::string_view text) {
  const auto parts = parts_of(text);
  const bool whole = (parts.size() == 5 || parts.size() == 6) && parts[0] == kPrefix;
  const auto port = whole ? number_of<uint16_t>(parts[2]) : std::nullopt;
  const auto generation = whole ? number_of<uint64_t>(parts[4]) : std::nullopt;
  const bool has_host = whole && !parts[1].empty() && parts[1].size() <= kHostBytesMax &&
                        is_printable(parts[1]) && parts[1].find(' ') == std::string_view::npos;
  const std::string_view key = parts.size() == 6 ? parts[5] : "";
  const bool has_group = whole && is_hexadecimal(parts[3], ReconfigureHandle::kGroupDigits);
  const bool key_fits = parts.size() == 5 || is_hexadecimal(key, ReconfigureHandle::kKeyDigits);
  if (!has_host || !port || *port == 0 || !generation || !has_group || !key_fits) {
    return Status{Code::kInvalidArgument,
                  "\"" + printable(cut(text, kShownBytes)) +
                      "\" is no handle of pccl: it comes from get_reconfigure_handle() of a group "
                      "with backend=\"pccl\", and looks like pccl1/10.0.0.5/41234/" +
                      std::string(ReconfigureHandle::kGroupDigits, '0') + "/1",
                  {}};
  }
  return ReconfigureHandle{
      {std::string(parts[1]), *port}, std::string(parts[3]), *generation, std::string(key)};
}

std::string short_name(const ReconfigureHandle& handle) {
  return pccl::text(handle.at) + " (group " + handle.group.substr(0, kShownDigits) + ")";
}

}  // namespace pccl::protocol
