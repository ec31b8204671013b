// JoinOptions: the decisions of Python about how a process becomes a peer of a run. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace pccl::torch_layer {

// pccl_backend/_C.pyi has the same fields, and documents them. Python gives a value to each field.
struct JoinOptions {
  std::string host;
  uint16_t port = 0;
  std::string run;
  uint32_t peer_group = 0;
  uint32_t founders = 0;
  uint32_t min_peers = 0;
  int32_t rank = -1;
  std::string launch;
  std::string name;
  double timeout = 0;
  std::optional<std::string> on_peer_loss;
  std::optional<std::string> pattern;
  std::optional<double> peer_timeout;
  std::optional<double> first_call_timeout;
  std::optional<double> call_timeout;
  double master_timeout = 0;
  std::string advertise;
  uint16_t advertised_port = 0;
  std::pair<uint16_t, uint16_t> port_range;
  uint32_t lanes = 0;
  std::string tcp_congestion;
  bool restore = true;
  bool check_callsite = false;
  bool open_run = false;
  std::string secret_file;
  std::string token;
  bool insecure = false;
};

}  // namespace pccl::torch_layer
