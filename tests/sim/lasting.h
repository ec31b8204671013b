// Lasting: faults that last for a while. Each has a function that ends it, which runs once: after
// its time, or at end_all().
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tests/sim/event_loop.h"

namespace pccl::sim {

class Lasting {
 public:
  explicit Lasting(EventLoop& clock) : clock_(clock) {}
  Lasting(const Lasting&) = delete;  // events of the clock refer to it
  Lasting& operator=(const Lasting&) = delete;

  void add(Duration duration, std::function<void()> end) {
    const uint64_t id = ++added_;
    ends_.emplace_back(id, std::move(end));
    clock_.after(duration, [this, id] {
      const auto at = std::find_if(ends_.begin(), ends_.end(),
                                   [id](const auto& one) { return one.first == id; });
      if (at == ends_.end()) return;
      const auto ends_it = std::move(at->second);
      ends_.erase(at);
      ends_it();
    });
  }
  void end_all() {
    for (const auto& [id, end] : std::exchange(ends_, {})) end();
  }

 private:
  EventLoop& clock_;
  std::vector<std::pair<uint64_t, std::function<void()>>> ends_;
  uint64_t added_ = 0;
};

}  // namespace pccl::sim
