// Network: decides which simulated machines can reach each other. Data arrives in order. While a
// path is blocked, its data is held back and arrives when the path opens again, as TCP achieves by
// retransmission. A narrow path drops larger packets, and nobody is informed. Network does not
// close connections: an end that receives nothing for too long does that itself. The World owns it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"

namespace pccl::sim {

class Network {
 public:
  using Host = uint16_t;  // a peer's port
  static constexpr Host kMaster = 0;
  // Time until a lost SYN is sent again.
  static constexpr Duration kSynPause = std::chrono::seconds(1);

  bool open(Host from, Host to) const { return !blocked_.contains({from, to}); }
  bool open_both_ways(Host a, Host b) const { return open(a, b) && open(b, a); }

  // Size of the largest packet that arrives, in bytes.
  size_t width(Host from, Host to) const {
    const auto narrow = narrow_.find({from, to});
    return narrow == narrow_.end() ? SIZE_MAX : narrow->second;
  }
  void narrow(Host from, Host to, size_t width) { narrow_[{from, to}] = width; }
  void widen(Host from, Host to) { narrow_.erase({from, to}); }

  // Blocks may overlap: the path opens after one lift() per block().
  void block(Host from, Host to) { ++blocked_[{from, to}].count; }
  void lift(Host from, Host to) {
    const auto direction = blocked_.find({from, to});
    if (direction == blocked_.end() || --direction->second.count > 0) return;
    const auto held = std::move(direction->second.held);
    blocked_.erase(direction);
    for (const auto& what : held) what();
  }

  // Runs `what`, the arrival of data at machine `to`: now, or when the path opens.
  void pass(Host from, Host to, std::function<void()> what) {
    const auto direction = blocked_.find({from, to});
    if (direction == blocked_.end()) return what();
    direction->second.held.push_back(std::move(what));
  }

 private:
  struct Directions {
    int count = 0;
    std::vector<std::function<void()>> held;
  };
  std::map<std::pair<Host, Host>, Directions> blocked_;
  std::map<std::pair<Host, Host>, size_t> narrow_;
};

}  // namespace pccl::sim
