// Coverage: which rows of the transition tables of the cores were taken, over all runs of a
// process, and how often; and for the run under way, who wants to know of the next step.
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
  // Called at every step until it is replaced, from inside a core: it may only ask for later.
  std::function<void(const TransitionTable& table, size_t row)> on_step;

  // A line for each table, and one for each of its rows that was not taken.
  std::string report() const;
  bool complete() const;  // every row of every table was taken
  // All rows of all tables, in an order that does not depend on the linker.
  static std::vector<std::pair<const TransitionTable*, size_t>> rows();

 private:
  uint64_t taken(const TransitionTable& table, size_t row) const;
  std::map<const TransitionTable*, std::vector<uint64_t>> taken_;
};

}  // namespace pccl::sim
