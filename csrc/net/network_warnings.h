// NetworkWarnings: decides when the log mentions the attempts of strangers from one network.
// Strangers decide how often they try, so the log has at most one line about a network in each
// kInterval, with the number of attempts. It is pure.
// Invariant: at most kNetworksMax networks are counted here. While there is no room for another
// network, the log does not mention it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "csrc/base/clock.h"

namespace pccl::net {

class NetworkWarnings {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(10);
  static constexpr size_t kNetworksMax = 16;

  // Counts one more attempt from `network`. Returns the number of attempts since the last warning
  // about this network, if a warning is due now; else 0.
  uint64_t count(const std::string& network, Instant now);

 private:
  struct Counted {
    Instant warned;
    uint64_t since = 0;
  };
  std::map<std::string, Counted> networks_;
};

}  // namespace pccl::net
