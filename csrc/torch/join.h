// join: how a Python process becomes a peer of a run. JoinOptions has the decisions of Python.
// join() blocks until the peer is admitted. It lets other threads run Python meanwhile, and raises
// KeyboardInterrupt on Ctrl-C. Failure: options that are out of range raise ValueError, and a run
// that cannot be joined raises the error of its Status.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/torch/hosted_run.h"

namespace pccl::torch_layer {

class PcclGroup;

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
  bool open_run = false;
  std::string secret_file;
  std::string token;
  bool insecure = false;
};

// REQUIRES: the caller holds the GIL. torch gets `store` as the store of the group. `hosted` may be
// null; otherwise it is the run to join, and it ends after the peer has left.
c10::intrusive_ptr<PcclGroup> join(const JoinOptions& options,
                                   const c10::intrusive_ptr<c10d::Store>& store,
                                   std::shared_ptr<HostedRun> hosted);

}  // namespace pccl::torch_layer
