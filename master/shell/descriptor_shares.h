// DescriptorShares: how many of the descriptors of this process are for which connections of a
// master. Pure functions of the limit of the process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "csrc/net/descriptors.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"
#include "master/shell/control_socket.h"
#include "master/shell/dial_backs.h"
#include "master/text_format.h"

namespace pccl::master {

struct DescriptorShares {
  // Maximum number of connections without a run (arrivals.h chooses which to close). If a quarter
  // of all descriptors is less, that number applies.
  static constexpr size_t kPendingMax = 4096;
  // Reserved for the master itself, for control clients and for connections back.
  static constexpr size_t kOwn = 16 + ControlSocket::kConnectionsMax + DialBacks::kAtOnceMax;

  // The largest number of observers. A process that may have few descriptors needs them for peers.
  static size_t observers_max() {
    return std::min(protocol::kObserversMax, net::descriptors_max() / 16);
  }

  // A new peer is admitted only while the runs have fewer connections than this. An eighth of all
  // descriptors stays reserved for members that resume.
  static size_t connections_max() {
    const size_t all = net::descriptors_max();
    const size_t kept = net::pending_max(kPendingMax) + all / 8 + kOwn + observers_max();
    return all > kept ? all - kept : 1;
  }

  // `admitted`: the connections of the runs. Nothing, if there is room for another one.
  static std::optional<protocol::Reject> refuse_one_more(size_t admitted) {
    if (admitted < connections_max()) return std::nullopt;
    return protocol::Reject{Code::kInvalidState,
                            "this master has " + count_text(admitted, "peer") +
                                " connected, the most for which its limit of " +
                                std::to_string(net::descriptors_max()) +
                                " open files leaves room: start it with a higher one (ulimit -n), "
                                "or start another master"};
  }
};

}  // namespace pccl::master
