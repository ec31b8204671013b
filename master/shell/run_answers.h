// run_answers: the answers to the requests of an operator about runs (operator/control.h). All
// functions run on the loop of the Runs, and do what the request asks.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pccl::master {

class Runs;

nlohmann::json answer_runs(const Runs& runs);
nlohmann::json answer_forget(Runs& runs, const std::string& run);
// `run`: empty for the only run that is under way. An error lists the runs if there is no such run.
nlohmann::json answer_status(Runs& runs, const std::string& run);

}  // namespace pccl::master
