// Transitions: the table of a state machine: which state may follow which, the event of each step,
// and the messages or actions that follow. The table is a constant at the top of the machine's
// `.cc` file. docs/state-machines.md is drawn from the tables by `make diagrams`.
//   1. The machine takes every step through its table. A step that the table lacks is a bug in pccl
//      and asserts.
//   2. A table has one row for each allowed pair of states, even if several events cause this step:
//      step() gets only the states. The machine begins in the state `from` of the first row, which
//      leads to all other states.
//   3. All tables are registered, with the name of their machine.
//   4. An observer, if there is one, is called at every step. A simulator uses it to find the rows
//      that its runs have never taken. Set it before anything else runs. A shipped process has no
//      observer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/assert.h"

namespace pccl {

class TransitionTable {
 public:
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void stepped(const TransitionTable& table, size_t row) = 0;
  };
  static inline Observer* observer = nullptr;

  // All tables of the process, sorted by the name of the machine, so that the order does not depend
  // on the linker.
  static std::vector<const TransitionTable*> all() {
    std::vector<const TransitionTable*> tables = registry();
    std::sort(tables.begin(), tables.end(), [](const auto* a, const auto* b) {
      return std::string_view(a->machine()) < b->machine();
    });
    return tables;
  }

  TransitionTable(const TransitionTable&) = delete;
  TransitionTable& operator=(const TransitionTable&) = delete;
  const char* machine() const { return machine_; }
  virtual size_t size() const = 0;
  // A row as text. Semicolons separate several events, and the effects of several events.
  struct RowText {
    const char *from, *to, *event, *effect;
  };
  virtual RowText row(size_t row) const = 0;
  std::string text(size_t row) const {  // "active -> draining"
    const RowText row_text = this->row(row);
    return std::string(row_text.from) + " -> " + row_text.to;
  }

 protected:
  explicit TransitionTable(const char* machine) : machine_(machine) { registry().push_back(this); }
  ~TransitionTable() = default;  // tables live as long as the process

 private:
  static std::vector<const TransitionTable*>& registry() {
    static std::vector<const TransitionTable*> tables;
    return tables;
  }
  const char* const machine_;
};

template <typename State, size_t N>
class Transitions final : public TransitionTable {
 public:
  struct Row {
    State from, to;
    const char* event;        // cause of the step
    const char* effect = "";  // messages or actions that follow
  };
  using Name = const char* (*)(State);

  Transitions(const char* machine, Name name, const Row (&rows)[N])
      : TransitionTable(machine), name_(name) {
    for (size_t row = 0; row < N; ++row) rows_[row] = rows[row];
  }
  bool allow(State from, State to) const { return row_of(from, to) < N; }
  // The state after the step. REQUIRES: the table allows it.
  State step(State from, State to) const {
    const size_t row = row_of(from, to);
    PCCL_ASSERT(row < N);
    if (observer != nullptr) observer->stepped(*this, row);
    return to;
  }
  size_t size() const override { return N; }
  RowText row(size_t row) const override {
    PCCL_ASSERT(row < N);
    const Row& at = rows_[row];
    return {name_(at.from), name_(at.to), at.event, at.effect};
  }

 private:
  size_t row_of(State from, State to) const {
    size_t row = 0;
    while (row < N && !(rows_[row].from == from && rows_[row].to == to)) ++row;
    return row;
  }
  const Name name_;
  Row rows_[N];
};

}  // namespace pccl
