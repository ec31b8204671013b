// Checker: compares what all peers observed and checks the promises (docs/design.md, section 1).
// Each peer reports every outcome that it observes. The checker compares the report with the first
// report of the same thing, and keeps the first ten violations as text. The Driver owns it.
//   P1 uniform outcome: one (generation, operation) has the same outcome at every peer;
//   P2 untouched on failure: reported by the workload, which compares the tensor with its copy;
//   P3 bit-identical: the hash of the result is part of the outcome;
//   P4 never hangs: reported by the driver, which knows how long a call may take.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/ids.h"

namespace pccl::sim {

class Checker {
 public:
  // `what` names the thing that was observed; `outcome` is its outcome at peer `who`.
  void saw(const std::string& what, const std::string& who, const std::string& outcome) {
    const auto [found, first] = seen_.try_emplace(what, Seen{who, outcome});
    if (first || found->second.outcome == outcome) return;
    violation("P1/P3 " + what + ": " + found->second.who + " saw " + found->second.outcome + ", " +
              who + " saw " + outcome);
  }
  // Like saw(), for an outcome that can be lost together with a killed master and a lost peer: that
  // all members came to a barrier, that a member had not called an operation, or what was answered.
  // Such outcomes are compared at the end, and only between survivors.
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
  // The peer is absent from a reduction.
  void misses(const std::string& what, PeerId peer) { (*absent_)[what].insert(peer); }
  const std::set<PeerId>& absent_from(const std::string& what) { return (*absent_)[what]; }
  // A checker for what a liar observes. That the liar is absent counts for all.
  Checker for_liar() const {
    Checker checker;
    checker.absent_ = absent_;
    return checker;
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
  using Absent = std::map<std::string, std::set<PeerId>>;
  std::shared_ptr<Absent> absent_ = std::make_shared<Absent>();
  std::vector<Later> later_;
  std::vector<std::string> violations_;
};

}  // namespace pccl::sim
