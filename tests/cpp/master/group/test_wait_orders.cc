// Programs whose ranks post the same calls in different orders, with waits between them. Programs
// that cannot deadlock have no cycle of waits at any moment; programs that do have one at the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "master/group/wait_cycle.h"
#include "tests/cpp/master/harness.h"
#include "tests/cpp/programs.h"

namespace pccl::master {
namespace {

constexpr int kOrders = 10'000;

// The ranks execute their programs, one step at a time, in a random order. A wait ends when all
// ranks have posted the call.
class Orders {
 public:
  Orders(std::vector<Program> programs, size_t calls, std::mt19937& random)
      : programs_(std::move(programs)),
        at_(programs_.size()),
        posted_(calls, std::vector<bool>(programs_.size())),
        random_(random) {}

  // One step. False: no rank can continue.
  bool step() {
    std::vector<size_t> runnable;
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      if (!done(rank) && !blocks(rank)) runnable.push_back(rank);
    }
    if (runnable.empty()) return false;
    const size_t rank = runnable[random_() % runnable.size()];
    const ProgramStep& action = programs_[rank][at_[rank]++];
    if (!action.waits) posted_[action.call][rank] = true;
    return true;
  }
  bool done() const {
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      if (!done(rank)) return false;
    }
    return true;
  }
  std::vector<WaitCycle> cycles() const {
    std::vector<BlockedRank> blocked;
    for (uint32_t rank = 0; rank < programs_.size(); ++rank) {
      if (done(rank) || !blocks(rank)) continue;
      const size_t call = programs_[rank][at_[rank]].call;
      BlockedRank::Wait wait{op(0, std::to_string(call)), {}};
      for (uint32_t other = 0; other < programs_.size(); ++other) {
        if (!posted_[call][other]) wait.missing.push_back(other);
      }
      blocked.push_back({rank, {std::move(wait)}});
    }
    return blocked.size() < 2 ? std::vector<WaitCycle>() : wait_cycles(blocked);
  }

 private:
  bool done(size_t rank) const { return at_[rank] == programs_[rank].size(); }
  bool blocks(size_t rank) const {
    const ProgramStep& next = programs_[rank][at_[rank]];
    const auto& by = posted_[next.call];
    return next.waits && std::find(by.begin(), by.end(), false) != by.end();
  }

  const std::vector<Program> programs_;
  std::vector<size_t> at_;                 // by rank: its next step
  std::vector<std::vector<bool>> posted_;  // by call, by rank
  std::mt19937& random_;
};

TEST(WaitOrders, ProgramsThatCannotDeadlockHaveNoCycleAtAnyMoment) {
  std::mt19937 random(1);
  int waits = 0;
  for (int number = 0; number < kOrders; ++number) {
    const size_t ranks = 2 + random() % 7, calls = 2 + random() % 7;
    const std::vector<size_t> all = numbers_to(calls), order = shuffled(all, random);
    const size_t sparse = 1 + random() % 3;
    std::vector<Program> programs;
    for (size_t rank = 0; rank < ranks; ++rank)
      programs.push_back(program(all, order, sparse, random));
    Orders orders(std::move(programs), calls, random);
    while (orders.step()) {
      waits += 1;
      ASSERT_TRUE(orders.cycles().empty()) << number;
    }
    ASSERT_TRUE(orders.done()) << number << ": the rule of this test does not exclude deadlocks";
  }
  EXPECT_GT(waits, kOrders);
}

TEST(WaitOrders, ADeadlockHasACycleWhichNeverEnds) {
  std::mt19937 random(2);
  int deadlocks = 0, successes = 0;
  for (int number = 0; number < kOrders; ++number) {
    const size_t ranks = 2 + random() % 3, calls = 2 + random() % 3;
    std::vector<Program> programs;
    for (size_t rank = 0; rank < ranks; ++rank)
      programs.push_back(program(numbers_to(calls), {}, 2, random));
    Orders orders(std::move(programs), calls, random);
    bool found = false;
    while (orders.step()) found |= !orders.cycles().empty();
    if (orders.done()) {
      ASSERT_FALSE(found) << number << ": a cycle that ended by itself";
      successes += 1;
    } else {
      ASSERT_FALSE(orders.cycles().empty()) << number << ": ranks are stuck without a cycle";
      deadlocks += 1;
    }
  }
  EXPECT_GT(deadlocks, kOrders / 10);
  EXPECT_GT(successes, kOrders / 10);
}

}  // namespace
}  // namespace pccl::master
