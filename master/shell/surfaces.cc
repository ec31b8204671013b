#include "master/shell/surfaces.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "csrc/base/assert.h"
#include "master/shell/proofs.h"
#include "master/shell/run_answers.h"
#include "master/shell/runs.h"

namespace pccl::master {

Status Surfaces::open_control(const std::string& path) {
  PCCL_ASSERT(control_ == nullptr);
  auto opened = ControlSocket::open(
      loop_, path, [this](const ControlRequest& request, const ControlSocket::Answer& then) {
        answer(request, then);
      });
  if (!opened.ok()) return opened.status();
  control_ = std::move(opened.value());
  return {};
}

// control.h defines requests and answers.
void Surfaces::answer(const ControlRequest& request, const ControlSocket::Answer& then) {
  switch (request.command) {
    case Command::kRuns: return then(answer_runs(runs_));
    case Command::kForget: return then(answer_forget(runs_, request.run));
    case Command::kStatus:
      return then(
          answer_status(runs_, request.run, request.history ? Detail::kHistory : Detail::kPresent));
    case Command::kRevoke: return answer_revoke(proofs_.keyring(), request.tokens, then);
  }
}

Result<std::string> Surfaces::open_http(const http::Place& place, const std::string& proxy) {
  PCCL_ASSERT(http_ == nullptr);
  auto opened = HttpServer::open(
      loop_, place, proxy,
      {.runs = [this] { return answer_runs(runs_); },
       .snapshot_of =
           [this](const std::string& run) { return observe(runs_, run, Detail::kHistory); },
       .keyring =
           [this] {
             const KeyringFile* file = proofs_.keyring();
             return file == nullptr ? nullptr : &file->keyring();
           },
       .is_healthy = [this] { return runs_.journal_works(); },
       .metrics = [this] { return answer_metrics(runs_); }});
  if (!opened.ok()) return opened.status();
  http_ = std::move(opened.value());
  return http_->url();
}

void Surfaces::revoke(const std::set<TokenId>& tokens) {
  if (http_ != nullptr) http_->revoke(tokens);
}

}  // namespace pccl::master
