// pccl-limits: prints the limits that C++ and Python share, as the Python module
// pccl_backend/_limits.py. setup.py runs it in each build and puts the module into the package.
// So each number is defined in C++ only, and the command line reads it without the compiled module,
// which would load torch. pccl_backend/_limits.pyi declares the same names and says what they mean.

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <limits>

#include "csrc/base/endpoint.h"
#include "csrc/base/ids.h"
#include "csrc/base/secret.h"
#include "csrc/base/token.h"
#include "csrc/base/wire_format.h"
#include "csrc/net/stream.h"
#include "csrc/protocol/limits.h"
#include "master/runs/keyring.h"
#include "master/shell/shell.h"

namespace {

void print(const char* name, std::unsigned_integral auto value) {
  std::printf("%s = %llu\n", name, static_cast<unsigned long long>(value));
}

void print(const char* name, pccl::Duration value) {  // in seconds; nine digits are nanoseconds
  std::printf("%s = %.9f\n", name, pccl::to_seconds(value));
}

}  // namespace

int main() {
  using namespace pccl::protocol;
  std::puts("\"\"\"The limits that C++ has too. A build makes this file: see _limits.pyi.\"\"\"\n");
  print("PORT_MAX", std::numeric_limits<decltype(pccl::Endpoint::port)>::max());
  print("MASTER_PORT_DEFAULT", pccl::master::kPortDefault);
  print("MASTER_ANSWER_BYTES_MAX", pccl::net::Stream::kQueueBytesMax);
  print("PEER_GROUP_MAX", std::numeric_limits<decltype(pccl::GroupId::value)>::max());
  print("MEMBERS_MAX", kMembersMax);
  print("HOST_BYTES_MAX", kHostBytesMax);
  print("NAME_BYTES_MAX", kNameBytesMax);
  print("RUN_NAME_BYTES_MAX", kRunNameBytesMax);
  print("LAUNCH_BYTES_MAX", kLaunchBytesMax);
  print("TAG_BYTES_MAX", kTagBytesMax);
  print("TOKEN_ID_BYTES_MIN", pccl::kTokenIdBytesMin);
  print("TOKEN_ID_BYTES_MAX", pccl::kTokenIdBytesMax);
  print("TOKEN_SECRET_BYTES", pccl::Secret::kBytes);
  print("KEYRING_BYTES_MAX", pccl::master::kKeyringBytesMax);
  print("STATE_KEYS_MAX", kStateKeysMax);
  print("STATE_KEY_BYTES_MAX", kStateKeyBytesMax);
  print("LANES_MAX", kLanesMax);
  print("TRIAL_STREAMS_MAX", kTrialStreamsMax);
  print("TRIAL_TIME_MIN_S", kTrialTimeMin);
  print("TRIAL_TIME_MAX_S", kTrialTimeMax);
  print("PROBES_BYTES_MIN", kProbesBytesMin);
  print("PROBE_BUDGET_MAX_S", pccl::Duration(std::chrono::milliseconds(kProbeBudgetMax)));
  print("QUANTIZED_BLOCK_MIN", pccl::WireFormat::kBlockMin);
  print("QUANTIZED_BLOCK_MAX", pccl::WireFormat::kBlockMax);
  print("WAN_RTT_MIN_S", kWanRttMin);
  print("PEER_TIMEOUT_DEFAULT_S", kPeerTimeoutDefault);
  print("PEER_TIMEOUT_MIN_S", kPeerTimeoutMin);
  print("PEER_TIMEOUT_MAX_S", kPeerTimeoutMax);
  print("MASTER_TIMEOUT_DEFAULT_S", kMasterTimeoutDefault);
  print("SNAPSHOT_INTERVAL_MIN_S", kSnapshotIntervalMin);
  return 0;
}
