#include "master/shell/run_answers.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/base/text.h"
#include "csrc/protocol/limits.h"
#include "master/operator/control.h"
#include "master/operator/summary.h"
#include "master/shell/keyring_file.h"
#include "master/shell/runs.h"

namespace pccl::master {
namespace {

std::string quoted(const std::string& run) {
  return "\"" + printable(cut(run, protocol::kRunNameBytesMax)) + "\"";
}

// "\"day\", \"night\" and 3 more".
std::string list_text(const std::vector<std::string>& runs) {
  const size_t named = std::min(runs.size(), kRunsSummedUp);
  std::string out;
  for (size_t i = 0; i < named; ++i) out += (i == 0 ? "" : ", ") + quoted(runs[i]);
  if (named < runs.size()) out += " and " + std::to_string(runs.size() - named) + " more";
  return out;
}

}  // namespace

nlohmann::json answer_runs(const Runs& runs) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [name, run] : runs.list()) all.push_back(run_answer(name, run));
  return {{"runs", std::move(all)}};
}

nlohmann::json answer_forget(Runs& runs, const std::string& run) {
  const auto forgotten = runs.forget(run);
  if (const auto* why = std::get_if<std::string>(&forgotten)) return error_answer(*why);
  const FinishedRun& line = std::get<Registry::Forget>(forgotten).what;
  const Registry::Listed listed{Registry::Phase::kFinished, line.origin, 0, line.ended,
                                line.states};
  return {{"forgot", run_answer(run, listed)}};
}

nlohmann::json answer_status(Runs& runs, const std::string& run, Detail detail) {
  std::vector<std::string> alive;
  const auto all = runs.list();
  for (const auto& [name, listed] : all) {
    if (runs.lives(name)) alive.push_back(name);
  }
  const std::string under_way = alive.empty() ? "this master has no run under way"
                                              : "these runs are under way: " + list_text(alive);
  if (run.empty() && alive.size() != 1) {
    return error_answer(alive.empty() ? under_way + ": `pccl runs` lists those that are over"
                                      : "name one run, because " + under_way);
  }
  const std::string& name = run.empty() ? alive[0] : run;
  if (auto found = runs.snapshot_of(name, detail)) return std::move(*found);
  const bool over = all.contains(name);
  return error_answer(
      "run " + quoted(name) +
      (over ? " is over (`pccl runs` shows its shared state)" : " is not known to this master") +
      "; " + under_way);
}

std::string answer_metrics(Runs& runs) { return runs.metrics(); }

std::variant<nlohmann::json, protocol::Reject> observe(Runs& runs, const std::string& run,
                                                       Detail detail) {
  if (auto found = runs.snapshot_of(run, detail)) return std::move(*found);
  const bool over = runs.list().contains(run);
  return protocol::Reject{Code::kInvalidState,
                          "run " + quoted(run) +
                              (over ? " is over" : " is not known to this master") +
                              ": `pccl runs` on the machine of the master lists its runs"};
}

void answer_revoke(KeyringFile* keyring, const std::vector<TokenId>& tokens,
                   const std::function<void(const nlohmann::json&)>& then) {
  if (keyring == nullptr) {
    return then(error_answer(
        "this master was started without --keyring: it knows no tokens, and removes no peers"));
  }
  keyring->read_again([keyring, tokens, then](Result<KeyringFile::Revoked> read) {
    if (!read.ok())
      return then(error_answer(read.status().message + ". This master keeps its tokens"));
    for (const TokenId& id : tokens) {
      if (!keyring->keyring().contains(id)) continue;
      return then(error_answer("the keyring of this master, " + keyring->path() +
                               ", still has the token " + id +
                               ": name that keyring with --keyring"));
    }
    const auto& [gone, peers] = read.value();
    log(LogLevel::kInfo, gone > 0 ? LogEvent::kTokenRevoked : LogEvent::kKeyringRead,
        "read the keyring again: " + count_text(gone, "token") + " revoked, and " +
            count_text(peers, "peer") + " removed");
    then(revoked_answer(gone, peers));
  });
}

}  // namespace pccl::master
