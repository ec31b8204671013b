// control: the requests of a person at the master's machine, and the answers. Request and answer
// are one line of JSON each (control_socket.h carries them). `pccl runs` and `pccl forget` send the
// two requests that exist; later ones will have the same form.
//
//   {"command":"runs"}                 {"runs":[RUN, ...]}
//   {"command":"forget","run":"NAME"}  {"forgot":RUN}
//   anything that goes wrong           {"error":"a plain sentence"}
//
//   RUN: {"run":"NAME", "state":"training"|"founding"|"away"|"finished", "peers":3,
//         "address":"10.0.0.7",
//         "since":1764000000,  // unix seconds: end of a finished run, else its beginning
//         "shared_states":[{"group":0, "revision":120, "hash":"00c0ffee00c0ffee"}]}
//
// Both sides ignore unknown fields. Pure functions; none throws, whatever the line contains.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "csrc/base/result.h"
#include "master/registry.h"

namespace pccl::master {

enum class Command { kRuns, kForget };

struct ControlRequest {
  Command command = Command::kRuns;
  std::string run;  // its name, for a command about one run
  bool operator==(const ControlRequest&) const = default;
};

// kInvalidArgument with a sentence for the sender of the line.
Result<ControlRequest> parse_request(std::string_view line);

nlohmann::json run_answer(const std::string& name, const Registry::Listed& run);
nlohmann::json error_answer(const std::string& why);

// The line to send, with its newline. Bytes that are not UTF-8 are replaced.
std::string answer_line(const nlohmann::json& answer);

}  // namespace pccl::master
