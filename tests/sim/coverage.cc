#include "tests/sim/coverage.h"

#include <algorithm>
#include <string_view>

namespace pccl::sim {
namespace {

// The tables that the simulator drives. `pccl probe` is a program of its own, with tests of its own
// (tests/cpp/probe).
std::vector<const TransitionTable*> tables() {
  std::vector<const TransitionTable*> all = TransitionTable::all();
  std::erase_if(all, [](const TransitionTable* table) {
    const std::string_view machine = table->machine();
    return machine == "a probe client" || machine == "a probe server";
  });
  return all;
}

}  // namespace

void Coverage::stepped(const TransitionTable& table, size_t row) {
  auto& taken = taken_[&table];
  taken.resize(table.size());
  ++taken[row];
  if (on_step) on_step(table, row);
}

uint64_t Coverage::taken(const TransitionTable& table, size_t row) const {
  const auto at = taken_.find(&table);
  return at == taken_.end() ? 0 : at->second[row];
}

std::vector<std::pair<const TransitionTable*, size_t>> Coverage::rows() {
  std::vector<std::pair<const TransitionTable*, size_t>> rows;
  for (const TransitionTable* table : tables()) {
    for (size_t row = 0; row < table->size(); ++row) rows.emplace_back(table, row);
  }
  return rows;
}

bool Coverage::complete() const {
  const auto all = rows();
  return std::all_of(all.begin(), all.end(),
                     [this](const auto& at) { return taken(*at.first, at.second) > 0; });
}

std::string Coverage::report() const {
  std::string out;
  for (const TransitionTable* table : tables()) {
    size_t count = 0;
    uint64_t rarest = UINT64_MAX;
    std::string rare, never;
    for (size_t row = 0; row < table->size(); ++row) {
      const uint64_t times = taken(*table, row);
      if (times == 0) never += "    never: " + table->text(row) + "\n";
      if (times > 0) ++count;
      if (times < rarest) rarest = times, rare = table->text(row);
    }
    out += "  " + std::string(table->machine()) + ": " + std::to_string(count) + " of " +
           std::to_string(table->size()) + " transitions taken";
    if (never.empty()) out += ", the rarest " + std::to_string(rarest) + " times: " + rare;
    out += "\n" + never;
  }
  return out;
}

}  // namespace pccl::sim
