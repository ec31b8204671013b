// control: the requests of a person at the master's machine, and the answers. Request and answer
// are one line of JSON each (control_socket.h carries them). `pccl runs`, `forget`, `status` and
// `token revoke` send the requests that exist; later ones will have the same form.
//
//   {"command":"runs"}                       {"runs":[RUN, ...]}
//   {"command":"forget","run":"NAME"}        {"forgot":RUN}
//   {"command":"revoke","tokens":[ID, ...]}  {"revoked":{"tokens":1, "peers":0}}
//   {"command":"status","run":"NAME"}        a snapshot of the run (snapshot.h)
//   {"command":"status"}                     likewise, of the only run that is under way
//   {"command":"status","history":true}      likewise, with the last hour (course.h)
//   anything that goes wrong                 {"error":"a plain sentence"}
//
//   revoke: the master reads its keyring again, and removes the peers of the tokens that have left
//   it. It refuses if a token of the request is still there, because then the person has changed
//   a different keyring. The answer counts the tokens that this master no longer knows, and the
//   peers that it removed.
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
#include <vector>

#include "csrc/base/result.h"
#include "master/runs/keyring.h"
#include "master/runs/registry.h"

namespace pccl::master {

enum class Command { kRuns, kForget, kRevoke, kStatus };

struct ControlRequest {
  Command command = Command::kRuns;
  std::string run = {};              // its name, for kForget and kStatus; empty: the only one
  std::vector<TokenId> tokens = {};  // for kRevoke
  bool history = false;              // for kStatus: with the last hour
  bool operator==(const ControlRequest&) const = default;
};

// Fails with kInvalidArgument and a sentence for the sender of the line.
Result<ControlRequest> parse_request(std::string_view line);

nlohmann::json run_answer(const std::string& name, const Registry::Listed& run);
nlohmann::json revoked_answer(size_t tokens, size_t peers);
nlohmann::json error_answer(const std::string& why);

// The line to send, with its newline. Bytes that are not UTF-8 are replaced.
std::string answer_line(const nlohmann::json& answer);

}  // namespace pccl::master
