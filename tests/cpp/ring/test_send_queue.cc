#include "csrc/ring/send_queue.h"

#include <gtest/gtest.h>

#include <memory>

namespace pccl::ring {
namespace {

OpKey op(uint32_t sequence) { return {TagId{1}, sequence}; }

TEST(SendQueue, TheOldestFirstWhateverTheOrderOfArrival) {
  std::vector<std::unique_ptr<Operation>> operations;
  for (uint32_t serial = 0; serial < 50; ++serial) {
    operations.push_back(
        std::make_unique<Operation>(Task{.epoch = {}, .op = op(serial), .shape = {}}, serial));
  }
  SendQueue queue;
  for (uint32_t at = 0; at < 50; ++at) queue.push(*operations[at * 37 % 50]);
  queue.remove(*operations[0]);
  queue.remove(*operations[20]);
  queue.remove(*operations[20]);
  for (uint32_t serial = 1; serial < 50; ++serial) {
    if (serial == 20) continue;
    EXPECT_TRUE(operations[serial]->queued);
    EXPECT_EQ(&queue.pop(), operations[serial].get());
    EXPECT_FALSE(operations[serial]->queued);
  }
  EXPECT_TRUE(queue.empty());
}

TEST(SendQueue, ContributionsToOneShotOperationsComeFirst) {
  Operation older(Task{.epoch = {}, .op = op(1), .shape = {}}, 1);
  Task task{.epoch = {}, .op = op(2), .shape = {}};
  task.shape.pattern = Pattern::kOneShot;
  Operation one_shot(task, 2);
  SendQueue queue;
  queue.push(older);
  queue.push(one_shot);
  EXPECT_EQ(&queue.pop(), &one_shot);
  EXPECT_EQ(&queue.pop(), &older);
}

TEST(SendQueue, PulledTransfersComeLast) {
  Operation pulled(Task{.epoch = {}, .op = op(1), .shape = {}, .pulled = true}, 1);
  Operation older(Task{.epoch = {}, .op = op(2), .shape = {}}, 2);
  Operation younger(Task{.epoch = {}, .op = op(3), .shape = {}}, 3);
  SendQueue queue;
  queue.push(pulled);
  queue.push(younger);
  queue.push(older);
  EXPECT_EQ(&queue.pop(), &older);
  EXPECT_EQ(&queue.pop(), &younger);
  EXPECT_EQ(&queue.pop(), &pulled);
}

TEST(SendQueue, FillersYieldToPulledTransfersToo) {
  Operation filler(Task{.epoch = {}, .op = op(1), .shape = {}, .filler = true}, 1);
  Operation pulled(Task{.epoch = {}, .op = op(2), .shape = {}, .pulled = true}, 2);
  Operation other(Task{.epoch = {}, .op = op(3), .shape = {}}, 3);
  SendQueue queue;
  queue.push(filler);
  queue.push(pulled);
  queue.push(other);
  EXPECT_EQ(&queue.pop(), &other);
  EXPECT_EQ(&queue.pop(), &pulled);
  EXPECT_EQ(&queue.pop(), &filler);
}

std::unique_ptr<Operation> prioritized(uint32_t serial, int8_t priority) {
  return std::make_unique<Operation>(
      Task{.epoch = {}, .op = op(serial), .shape = {}, .priority = priority}, serial);
}

TEST(SendQueue, AHigherPriorityComesFirstAndThenTheOldest) {
  const auto low = prioritized(1, -8), usual = prioritized(2, 0), high = prioritized(3, 7),
             younger = prioritized(4, 7);
  SendQueue queue;
  for (Operation* one : {low.get(), younger.get(), usual.get(), high.get()}) queue.push(*one);
  for (const Operation* one : {high.get(), younger.get(), usual.get(), low.get()}) {
    EXPECT_EQ(&queue.first(), one);
    EXPECT_EQ(&queue.pop(), one);
    queue.check();
  }
}

TEST(SendQueue, APriorityDecidesWithinItsClassOnly) {
  Operation pulled(Task{.epoch = {}, .op = op(1), .shape = {}, .priority = 7, .pulled = true}, 1);
  Operation filler(Task{.epoch = {}, .op = op(2), .shape = {}, .priority = 7, .filler = true}, 2);
  const auto low = prioritized(3, -8), high = prioritized(4, 7);
  SendQueue queue;
  for (Operation* one : {&pulled, &filler, low.get(), high.get()}) queue.push(*one);
  // Whatever the age of the others, no work of another class comes in between.
  for (uint32_t choice = 0; choice < 4 * SendQueue::kPassesMax; ++choice) {
    Operation& next = queue.pop();
    EXPECT_TRUE(&next == high.get() || &next == low.get());
    queue.push(next);
  }
  queue.remove(*high);
  EXPECT_EQ(&queue.pop(), low.get());
  EXPECT_EQ(&queue.pop(), &pulled);
  EXPECT_EQ(&queue.pop(), &filler);
}

// One operation that always has data for the next choice, and three others of lower priorities.
TEST(SendQueue, ReadyWorkIsPassedFifteenTimesInARowAtMost) {
  const auto high = prioritized(1, 3), oldest = prioritized(2, -1), usual = prioritized(3, 0),
             last = prioritized(4, 2);
  SendQueue queue;
  for (Operation* one : {high.get(), usual.get(), last.get(), oldest.get()}) queue.push(*one);
  for (const Operation* passed : {oldest.get(), usual.get(), last.get()}) {
    for (uint32_t choice = 0; choice < SendQueue::kPassesMax; ++choice) {
      ASSERT_EQ(&queue.pop(), high.get()) << choice;
      queue.push(*high);
    }
    EXPECT_EQ(&queue.first(), passed);
    EXPECT_EQ(&queue.pop(), passed);
    queue.check();
  }
  // With nobody to pass, the count begins anew.
  for (uint32_t choice = 0; choice < 4 * SendQueue::kPassesMax; ++choice) {
    ASSERT_EQ(&queue.pop(), high.get());
    queue.push(*high);
  }
  queue.push(*oldest);
  EXPECT_EQ(&queue.first(), high.get());
}

TEST(SendQueue, OperationsOfOnePriorityKeepTheOrderOfTheirCalls) {
  const auto older = prioritized(1, 0), younger = prioritized(2, 0);
  SendQueue queue;
  queue.push(*younger);
  queue.push(*older);
  for (uint32_t choice = 0; choice < 4 * SendQueue::kPassesMax; ++choice) {
    ASSERT_EQ(&queue.pop(), older.get());
    queue.push(*older);
  }
}

}  // namespace
}  // namespace pccl::ring
