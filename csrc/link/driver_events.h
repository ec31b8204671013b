// The options of LinkDriver, the events that it reports to its owner, and its counters: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/ids.h"
#include "csrc/base/result.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"

namespace pccl::link {

struct DriverOptions {
  uint16_t port_first = 0, port_last = 0;       // PCCL_PORT_RANGE; 0: any free port
  Duration wan_rtt_min = protocol::kWanRttMin;  // RTT of a wan path; tests lower it
  uint32_t lanes = 0;           // PCCL_LANES, for a link between ring neighbours; 0: automatic
  std::string congestion = {};  // PCCL_TCP_CONGESTION; empty: chosen by the path
};

struct Listening {
  Result<uint16_t> port;
  std::vector<std::string> hosts = {};  // numeric addresses of the listener's interfaces
};
struct LinkChanged {
  protocol::LinkReport report;
};
struct RateMeasured {  // the rate of sending on a link, while only the network limited it
  protocol::LinkRate link;
};
using DriverEvent = std::variant<Listening, LinkChanged, RateMeasured>;

// One link that is up, for run_info.
struct LinkCounters {
  PeerId peer;
  uint32_t serial = 0;                 // counts the attempts to connect
  uint32_t lanes = 0, lanes_used = 0;  // lanes_used: active lanes
  Duration rtt{0};
  uint64_t rate = 0;  // bytes per second, see PathMonitor; 0: not known yet
  uint64_t bytes_sent = 0, bytes_received = 0, send_calls = 0, receive_calls = 0;
  uint32_t segments_again = 0;  // as in PathInfo
};

}  // namespace pccl::link
