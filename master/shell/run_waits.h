// RunWaits: callers that wait until something is true of a run. Each names its run, and several may
// name the same one. The Shell owns three objects of this kind, on its loop.
#pragma once

#include <map>
#include <string>
#include <utility>

namespace pccl::master {

template <typename Wait>
class RunWaits {
 public:
  void add(const std::string& run, Wait wait) { waits_.emplace(run, std::move(wait)); }
  // Ends the waits of each run for which `is_over(run)` is true: calls `end(run, wait)`, and
  // forgets the wait.
  template <typename Over, typename End>
  void end(Over is_over, End end) {
    for (auto at = waits_.begin(); at != waits_.end();) {
      if (!is_over(at->first)) {
        ++at;
        continue;
      }
      end(at->first, at->second);
      at = waits_.erase(at);
    }
  }

 private:
  std::multimap<std::string, Wait> waits_;
};

}  // namespace pccl::master
