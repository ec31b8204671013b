// NetworkWarnings: decides when the log mentions the attempts of strangers from one network.
// Strangers decide how often that is, so the log has one line of a network in kInterval, with the
// number of times. It is pure.
// Invariant: at most kNetworksMax networks are here. The log mentions no others meanwhile.
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

  // It has happened once more. Returns how often it has happened since the last warning of this
  // network, if a warning is due now; else 0.
  uint64_t count(const std::string& network, Instant now);

 private:
  struct Counted {
    Instant warned;
    uint64_t since = 0;
  };
  std::map<std::string, Counted> networks_;
};

}  // namespace pccl::net
