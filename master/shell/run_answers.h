// run_answers: the answers to the requests of an operator (operator/control.h), and to an observer.
// All functions run on the loop of the Runs, and do what the request asks.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "csrc/protocol/messages.h"
#include "master/operator/snapshot.h"
#include "master/runs/keyring.h"

namespace pccl::master {

class KeyringFile;
class Runs;

nlohmann::json answer_runs(const Runs& runs);
nlohmann::json answer_forget(Runs& runs, const std::string& run);
// `run`: empty for the only run that is under way. An error lists the runs if there is no such run.
nlohmann::json answer_status(Runs& runs, const std::string& run, Detail detail);
// The numbers of all runs for Prometheus (operator/metrics.h).
std::string answer_metrics(Runs& runs);

// A snapshot for an observer, or the refusal if the run is not under way. The refusal names no
// other run, because the token of the observer may be for this one only.
std::variant<nlohmann::json, protocol::Reject> observe(Runs& runs, const std::string& run,
                                                       Detail detail = Detail::kPresent);

// Lets the master read its keyring again, and calls `then` once, at once or later. `keyring`: null
// if the master has none.
void answer_revoke(KeyringFile* keyring, const std::vector<TokenId>& tokens,
                   const std::function<void(const nlohmann::json&)>& then);

}  // namespace pccl::master
