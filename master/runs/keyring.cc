#include "master/runs/keyring.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "csrc/base/text.h"
#include "csrc/base/token.h"
#include "csrc/protocol/limits.h"
#include "master/operator/json_field.h"

namespace pccl::master {
namespace {

using nlohmann::json;

// The versions that are read. `pccl token` writes the last one.
constexpr int64_t kVersionWithoutRoles = 1, kKeyringVersion = 2;
constexpr const char* kVersionField = "pccl_keyring";
constexpr const char* kCountField = "tokens";
// An unknown role is repeated only if it has at most this number of bytes, all of them letters.
constexpr size_t kRoleShownMax = 16;

Status bad_keyring(std::string text) { return {Code::kInvalidArgument, std::move(text), {}}; }

json parse_line(std::string_view line) {
  return json::parse(line, nullptr, /*allow_exceptions=*/false);
}

std::string range_text(size_t first, size_t last) {
  return std::to_string(first) + " to " + std::to_string(last);
}

bool is_name(const std::string* text, size_t bytes_max) {
  return text != nullptr && !text->empty() && text->size() <= bytes_max && is_printable(*text);
}

// Returns nothing if `value` is neither null nor a list of names.
std::optional<std::vector<std::string>> runs_of(const json& value) {
  std::vector<std::string> runs;
  if (value.is_null()) return runs;
  if (!value.is_array() || value.empty()) return std::nullopt;
  for (const json& one : value) {
    const auto* run = one.get_ptr<const std::string*>();
    if (!is_name(run, protocol::kRunNameBytesMax)) return std::nullopt;
    runs.push_back(*run);
  }
  return runs;
}

// Removes the secret from `entry`.
std::optional<Secret> take_secret(json& entry) {
  auto* const text = entry["secret"].get_ptr<std::string*>();
  if (text == nullptr) return std::nullopt;
  auto secret = Secret::from_hex(*text);
  wipe(*text);
  return secret;
}

// Returns nothing if `value` is no role.
std::optional<Role> role_of(const std::string* value) {
  if (value == nullptr) return std::nullopt;
  if (*value == "peer") return Role::kPeer;
  if (*value == "observer") return Role::kObserver;
  return std::nullopt;
}

std::string wrong_role(const std::string* value) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool shown = value != nullptr && !value->empty() && value->size() <= kRoleShownMax &&
                     std::all_of(value->begin(), value->end(), is_letter);
  return (shown ? "its role is \"" + *value + "\", and must be" : std::string("its role must be")) +
         " \"peer\" or \"observer\"";
}

// Checks the first line. Returns a phrase about the file; empty if the line is right.
std::string wrong_head(const json& head) {
  const auto version = head.is_object() ? head.find(kVersionField) : head.end();
  if (version == head.end() || !version->is_number_integer()) {
    return std::string("is damaged in line 1, which must be {\"") + kVersionField +
           "\":2}: put back a whole copy, or move it away and make new tokens with `pccl token "
           "new`";
  }
  if (*version != kKeyringVersion && *version != kVersionWithoutRoles) {
    return "is of version " + version->dump() + ", and this pccl reads versions " +
           std::to_string(kVersionWithoutRoles) + " and " + std::to_string(kKeyringVersion) +
           ": install the pccl that has written it";
  }
  const auto count = head.find(kCountField);
  if (count == head.end() || count->is_number_unsigned()) return "";
  return "is damaged in line 1: its tokens must be the number of the lines that follow";
}

// The number of tokens that the first line names. It may be missing if a person has written the
// line.
std::optional<uint64_t> count_of(const json& head) {
  if (!head.contains(kCountField)) return std::nullopt;
  return head[kCountField].get<uint64_t>();
}

// Adds the token of a line to the keyring. Returns the reason if the line has no valid token;
// otherwise an empty text. `roles`: each line has a role.
std::string add(std::string_view line, bool roles, Keyring& keyring) {
  json entry = parse_line(line);
  if (!entry.is_object()) return "it is no JSON object";
  for (const char* field : {"id", "name", "runs", "created", "secret"}) {
    if (!entry.contains(field) || entry.size() != (roles ? 6 : 5) ||
        entry.contains("role") != roles)
      return std::string("its fields must be id, name,") + (roles ? " role," : "") +
             " runs, created and secret";
  }
  auto secret = take_secret(entry);
  if (!secret)
    return "its secret must have " + std::to_string(2 * Secret::kBytes) + " hexadecimal digits";
  const std::string* const id = text_at(entry, "id");
  if (id == nullptr || !is_token_id(*id)) {
    return "its id must have " + range_text(kTokenIdBytesMin, kTokenIdBytesMax) +
           " lowercase letters and digits";
  }
  const std::string* const name = text_at(entry, "name");
  if (!is_name(name, protocol::kNameBytesMax))
    return "its name must have " + range_text(1, protocol::kNameBytesMax) + " printable bytes";
  const auto role = roles ? role_of(text_at(entry, "role")) : Role::kPeer;
  if (!role) return wrong_role(text_at(entry, "role"));
  auto runs = runs_of(entry["runs"]);
  if (!runs) {
    return "its runs must be null, or a list of names that have " +
           range_text(1, protocol::kRunNameBytesMax) + " printable bytes";
  }
  if (!entry["created"].is_number_unsigned()) return "its created must be a number of seconds";
  Token token{*name, std::move(*runs), std::move(*secret), *role};
  return keyring.emplace(*id, std::move(token)).second ? "" : "an earlier line has the same id";
}

}  // namespace

Result<Keyring> parse_keyring(std::string_view text) {
  Keyring keyring;
  std::optional<uint64_t> count;
  bool roles = false;
  for (size_t number = 1; number == 1 || !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (number == 1) {
      const json head = parse_line(line);
      std::string wrong = wrong_head(head);
      if (!wrong.empty()) return bad_keyring(std::move(wrong));
      count = count_of(head);
      roles = head[kVersionField] == kKeyringVersion;
      continue;
    }
    const std::string wrong = add(line, roles, keyring);
    if (!wrong.empty()) {
      return bad_keyring("is damaged in line " + std::to_string(number) + ": " + wrong +
                         ". Put back a whole copy, or remove the line, which revokes its token");
    }
  }
  if (count.value_or(keyring.size()) == keyring.size()) return keyring;
  return bad_keyring("has " + count_text(keyring.size(), "token") + ", and its first line says " +
                     std::to_string(*count) +
                     ": put back a whole copy, or correct the number if you have changed the file");
}

}  // namespace pccl::master
