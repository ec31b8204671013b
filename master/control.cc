#include "master/control.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/protocol/limits.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

using nlohmann::json;

struct Known {
  std::string_view name;
  Command command;
  bool about_a_run;
};
constexpr std::array kCommands = {
    Known{"runs", Command::kRuns, false},
    Known{"forget", Command::kForget, true},
};

Status bad_request(const std::string& why) { return {Code::kInvalidArgument, why, {}}; }

// Null if there is no such field, or it is not a string.
const std::string* text_at(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
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
  if (!known->about_a_run) return ControlRequest{known->command, {}};
  const std::string* run = text_at(request, "run");
  if (run == nullptr)
    return bad_request("the command \"" + *name + "\" needs a \"run\", which is the name of one");
  return ControlRequest{known->command, *run};
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
