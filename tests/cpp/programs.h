// Programs of ranks that post the same calls in different orders, with waits between them, for
// tests of deadlock freedom.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <vector>

namespace pccl {

struct ProgramStep {
  bool waits = false;  // otherwise: posts
  size_t call = 0;
};
using Program = std::vector<ProgramStep>;

template <typename T>
std::vector<T> shuffled(std::vector<T> all, auto& random) {
  std::shuffle(all.begin(), all.end(), random);
  return all;
}

inline std::vector<size_t> numbers_to(size_t count) {
  std::vector<size_t> all(count);
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

// The program of a rank: it posts `calls` in a random order. A wait for one of them comes at once
// with a chance of one in `sparse`, and at the end otherwise. `order` has the calls of all ranks: a
// rank waits only for a call if it has posted all of its calls that come before it there, which
// excludes deadlocks. Empty: the rank waits for any call that it has posted.
inline Program program(const std::vector<size_t>& calls, const std::vector<size_t>& order,
                       size_t sparse, auto& random) {
  Program made;
  const std::set<size_t> mine(calls.begin(), calls.end());
  std::set<size_t> posted, awaited;
  const auto wait = [&](size_t call) {
    made.push_back({true, call});
    awaited.insert(call);
  };
  for (const size_t call : shuffled(calls, random)) {
    made.push_back({false, call});
    posted.insert(call);
    if (random() % sparse != 0) continue;
    if (order.empty()) {
      wait(call);
      continue;
    }
    for (const size_t next : order) {  // the calls that it may wait for
      if (!mine.contains(next)) continue;
      if (!posted.contains(next)) break;
      if (!awaited.contains(next) && random() % 2 == 0) wait(next);
    }
  }
  for (const size_t call : shuffled(calls, random)) {
    if (!awaited.contains(call)) wait(call);
  }
  return made;
}

}  // namespace pccl
