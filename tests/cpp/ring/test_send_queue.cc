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

}  // namespace
}  // namespace pccl::ring
