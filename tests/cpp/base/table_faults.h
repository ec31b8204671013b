// faults_of() says what is wrong with a transition table, apart from its meaning. A unit test tries
// it on small tables, and pccl-diagrams applies it to all tables of the library.
#pragma once

#include <set>
#include <string>

#include "csrc/base/transitions.h"

namespace pccl {

// One line for each fault; empty if the table is sound: its steps are all different, each has an
// event, and every state can be reached from the first row's `from`.
inline std::string faults_of(const TransitionTable& table) {
  std::string faults;
  std::set<std::string> steps, states, reached;
  for (size_t row = 0; row < table.size(); ++row) {
    const auto [from, to, event, effect] = table.row(row);
    const std::string step = table.text(row);
    if (!steps.insert(step).second) faults += "has two rows \"" + step + "\"\n";
    if (event == nullptr || *event == '\0') faults += "\"" + step + "\" has no event\n";
    states.insert({from, to});
  }
  reached.insert(table.row(0).from);
  for (size_t before = 0; before < reached.size();) {
    before = reached.size();
    for (size_t row = 0; row < table.size(); ++row) {
      if (reached.contains(table.row(row).from)) reached.insert(table.row(row).to);
    }
  }
  for (const std::string& state : states) {
    if (!reached.contains(state)) faults += "\"" + state + "\" cannot be reached\n";
  }
  return faults;
}

}  // namespace pccl
