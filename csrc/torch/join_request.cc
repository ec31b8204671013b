#include "csrc/torch/join_request.h"

#include <chrono>
#include <memory>
#include <tuple>

#include "csrc/base/token.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/timeout.h"

namespace pccl::torch_layer {
namespace {

// REQUIRES: the text of a token, which pccl_backend has read or made.
Token token_of(const std::string& text) {
  Result<Token> token = parse_token(text);
  if (!token.ok()) raise(token.status());
  return std::move(token.value());
}

// REQUIRES: pccl_backend has checked the texts.
protocol::GivenSettings given_settings(const JoinOptions& given) {
  using protocol::LossPolicy;
  using protocol::PatternChoice;
  protocol::GivenSettings settings;
  if (given.on_peer_loss)
    settings.on_peer_loss =
        *given.on_peer_loss == text(LossPolicy::kRetry) ? LossPolicy::kRetry : LossPolicy::kRaise;
  if (given.pattern)
    settings.pattern = *given.pattern == text(PatternChoice::kRing) ? PatternChoice::kRing
                                                                    : PatternChoice::kDirect;
  if (given.peer_timeout) settings.peer_timeout = to_duration(*given.peer_timeout);
  if (given.first_call_timeout)
    settings.first_call_timeout = to_duration(*given.first_call_timeout);
  if (given.call_timeout) settings.call_timeout = to_duration(*given.call_timeout);
  return settings;
}

}  // namespace

Duration to_duration(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

PeerSession::Request to_request(const JoinOptions& given) {
  PeerSession::Request request;
  request.master = {given.host, given.port};
  request.restore = given.restore;
  request.check_callsite = given.check_callsite;
  std::tie(request.data.port_first, request.data.port_last) = given.port_range;
  request.data.lanes = given.lanes;
  request.data.congestion = given.tcp_congestion;
  peer::Options& options = request.peer;
  options.run = given.run;
  options.group = GroupId{given.peer_group};
  options.given = given_settings(given);
  options.restore = given.restore;
  options.min_peers = given.min_peers;
  options.founders = given.founders;
  options.rank = given.rank;
  options.advertised = {given.advertise, given.advertised_port, given.port_range.first};
  options.join_timeout = checked_timeout(std::chrono::duration<double>(given.timeout));
  options.launch = given.launch;
  options.name = given.name;
  options.master_timeout = to_duration(given.master_timeout);
  options.hosted = !given.open_run;
  options.insecure = given.insecure;
  request.token.path = given.secret_file;
  if (!given.token.empty()) request.token.token = std::make_shared<Token>(token_of(given.token));
  return request;
}

}  // namespace pccl::torch_layer
