// Checker: what all peers saw, and whether that keeps the promises (DESIGN section 2). Peers tell
// it each outcome as they see it; it compares with what others saw of the same thing and keeps the
// first violations, in words.
//   P1 uniform outcome: one (generation, operation) has one outcome, whoever reports it;
//   P2 untouched on failure: told by the workload, which compares the tensor with its copy;
//   P3 bit-identical: the hash of the result is part of the outcome;
//   P4 never hangs: told by the driver, which knows how long a call may take.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace pccl::sim {

class Checker {
 public:
  // `what` names the thing, `outcome` what became of it at `who`.
  void saw(const std::string& what, const std::string& who, const std::string& outcome) {
    const auto [found, first] = seen_.try_emplace(what, Seen{who, outcome});
    if (first || found->second.outcome == outcome) return;
    violation("P1/P3 " + what + ": " + found->second.who + " saw " + found->second.outcome + ", " +
              who + " saw " + outcome);
  }
  // Likewise, but of something that a killed master and a lost peer may take with them: that all
  // had come to a barrier, that somebody had not called an operation, or what was answered, is for
  // nobody else to know. Compared at the end.
  void saw_if_it_survives(const std::string& what, const std::string& who,
                          const std::string& outcome) {
    later_.push_back({what, who, outcome});
  }
  void compare_survivors(const std::function<bool(const std::string&)>& survived) {
    for (const Later& one : later_) {
      if (survived(one.who)) saw(one.what, one.who, one.outcome);
    }
    later_.clear();
  }
  void violation(const std::string& what) {
    if (violations_.size() < 10) violations_.push_back(what);
  }
  const std::vector<std::string>& violations() const { return violations_; }
  size_t outcomes() const { return seen_.size(); }

 private:
  struct Seen {
    std::string who, outcome;
  };
  struct Later {
    std::string what, who, outcome;
  };
  std::map<std::string, Seen> seen_;
  std::vector<Later> later_;
  std::vector<std::string> violations_;
};

}  // namespace pccl::sim
