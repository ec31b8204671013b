// Coverage: counts how often each row of the cores' transition tables was taken, over all runs of a
// process. It also calls one observer at each step of the current run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "csrc/base/transitions.h"

namespace pccl::sim {

class Coverage : public TransitionTable::Observer {
 public:
  Coverage() { TransitionTable::observer = this; }
  ~Coverage() override { TransitionTable::observer = nullptr; }
  Coverage(const Coverage&) = delete;
  Coverage& operator=(const Coverage&) = delete;

  void stepped(const TransitionTable& table, size_t row) override;
  // Called at every step, from inside a core, until it is replaced. It may only schedule actions
  // for later.
  std::function<void(const TransitionTable& table, size_t row)> on_step;

  // One line per table, and one per row that was never taken.
  std::string report() const;
  bool complete() const;  // every row of every table was taken
  // All rows of all tables, in an order that does not depend on the linker.
  static std::vector<std::pair<const TransitionTable*, size_t>> rows();

 private:
  uint64_t taken(const TransitionTable& table, size_t row) const;
  std::map<const TransitionTable*, std::vector<uint64_t>> taken_;
};

}  // namespace pccl::sim
