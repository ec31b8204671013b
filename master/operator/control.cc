#include "master/operator/control.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/protocol/limits.h"
#include "master/operator/json_field.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

using nlohmann::json;

struct Known {
  std::string_view name;
  Command command;
};
constexpr std::array kCommands = {
    Known{"runs", Command::kRuns},
    Known{"forget", Command::kForget},
    Known{"revoke", Command::kRevoke},
    Known{"status", Command::kStatus},
};

Status bad_request(const std::string& why) { return {Code::kInvalidArgument, why, {}}; }

Result<ControlRequest> parse_forget(const json& request) {
  const std::string* run = text_at(request, "run");
  if (run == nullptr)
    return bad_request("the command \"forget\" needs a \"run\", which is the name of one");
  return ControlRequest{.command = Command::kForget, .run = *run};
}

Result<ControlRequest> parse_status(const json& request) {
  const auto flag = request.find("history");
  if (flag != request.end() && !flag->is_boolean())
    return bad_request("the \"history\" of the command \"status\" must be true or false");
  const bool history = flag != request.end() && flag->get<bool>();
  if (!request.contains("run"))
    return ControlRequest{.command = Command::kStatus, .history = history};
  const std::string* run = text_at(request, "run");
  if (run == nullptr || run->empty())
    return bad_request("the \"run\" of the command \"status\" must be the name of one");
  return ControlRequest{.command = Command::kStatus, .run = *run, .history = history};
}

Result<ControlRequest> parse_revoke(const json& request) {
  ControlRequest parsed{.command = Command::kRevoke};
  const auto tokens = request.find("tokens");
  bool right = tokens != request.end() && tokens->is_array();
  for (const json& token : right ? *tokens : json::array()) {
    const auto* const id = token.get_ptr<const std::string*>();
    right = right && id != nullptr;
    if (right) parsed.tokens.push_back(*id);
  }
  if (right) return parsed;
  return bad_request("the command \"revoke\" needs \"tokens\", which is a list of their ids");
}

}  // namespace

Result<ControlRequest> parse_request(std::string_view line) {
  const json request = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object()) return bad_request("the request is no JSON object on one line");
  const std::string* name = text_at(request, "command");
  if (name == nullptr) return bad_request("the request has no \"command\" that is a text");
  const auto known = std::find_if(kCommands.begin(), kCommands.end(),
                                  [&](const Known& one) { return one.name == *name; });
  if (known == kCommands.end()) {
    return bad_request("this master does not know the command \"" +
                       std::string(cut(printable(*name), protocol::kTextBytesMax)) +
                       "\": is it of another version?");
  }
  switch (known->command) {
    case Command::kForget: return parse_forget(request);
    case Command::kRevoke: return parse_revoke(request);
    case Command::kStatus: return parse_status(request);
    case Command::kRuns: break;
  }
  return ControlRequest{.command = known->command};
}

json run_answer(const std::string& name, const Registry::Listed& run) {
  PCCL_ASSERT(!name.empty());
  json states = json::array();
  for (const SharedStateRecord& state : run.states) {
    states.push_back({{"group", state.group.value},
                      {"revision", state.revision},
                      {"hash", hash_text(state.hash)}});
  }
  return {
      {"run", name},           {"state", text(run.phase)}, {"peers", run.connections},
      {"address", run.origin}, {"since", run.since},       {"shared_states", std::move(states)}};
}

json revoked_answer(size_t tokens, size_t peers) {
  return {{"revoked", {{"tokens", tokens}, {"peers", peers}}}};
}

json error_answer(const std::string& why) {
  PCCL_ASSERT(!why.empty());
  return {{"error", why}};
}

std::string answer_line(const json& answer) {
  const std::string line = answer.dump(-1, ' ', false, json::error_handler_t::replace);
  PCCL_ASSERT(line.find('\n') == std::string::npos);
  return line + "\n";
}

}  // namespace pccl::master
