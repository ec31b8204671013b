// control: what a person at the master's machine asks it, and what it answers. A request is one
// line of JSON and so is its answer (shell_control.h carries them); `pccl runs` and `pccl forget`
// are the two that there are, and later ones go the same way.
//
//   {"command":"runs"}                 {"runs":[RUN, ...]}
//   {"command":"forget","run":"NAME"}  {"forgot":RUN}
//   anything that goes wrong           {"error":"a plain sentence"}
//
//   RUN: {"run":"NAME", "state":"training"|"founding"|"away"|"finished", "peers":3,
//         "address":"10.0.0.7",
//         "since":1764000000,  // unix seconds: of its end if it is finished, else of its beginning
//         "shared_states":[{"group":0, "revision":120, "hash":"00c0ffee00c0ffee"}]}
//
// Fields that are not known are ignored on both sides. Pure functions; nothing throws, whatever the
// line holds.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "csrc/base/status.h"
#include "master/registry.h"

namespace pccl::master {

enum class Command { kRuns, kForget };

struct ControlRequest {
  Command command = Command::kRuns;
  std::string run;  // its name, of a command that is about one
  bool operator==(const ControlRequest&) const = default;
};

// kInvalidArgument with a sentence for whoever sent the line.
Result<ControlRequest> parse_request(std::string_view line);

nlohmann::json run_answer(const std::string& name, const Registry::Listed& run);
nlohmann::json error_answer(const std::string& why);

// As it is sent, its end included. Bytes that are no UTF-8 are replaced.
std::string answer_line(const nlohmann::json& answer);

}  // namespace pccl::master
