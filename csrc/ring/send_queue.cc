#include "csrc/ring/send_queue.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::ring {
namespace {

int yields(const Operation& operation) {
  if (operation.is_one_shot()) return 0;
  return operation.task.filler ? 3 : operation.task.pulled ? 2 : 1;
}

// Whether `a` leaves after `b`.
bool younger(const Operation* a, const Operation* b) {
  if (yields(*a) != yields(*b)) return yields(*a) > yields(*b);
  return a->serial > b->serial;
}

}  // namespace

void SendQueue::push(Operation& operation) {
  PCCL_ASSERT(!operation.queued);
  operation.queued = true;
  heap_.push_back(&operation);
  std::push_heap(heap_.begin(), heap_.end(), younger);
}

Operation& SendQueue::pop() {
  PCCL_ASSERT(!heap_.empty());
  std::pop_heap(heap_.begin(), heap_.end(), younger);
  Operation& operation = *heap_.back();
  heap_.pop_back();
  operation.queued = false;
  return operation;
}

const Operation& SendQueue::first() const {
  PCCL_DCHECK(!heap_.empty());
  return *heap_.front();
}

uint64_t SendQueue::bytes_left() const {
  uint64_t sum = 0;
  for (const Operation* operation : heap_) sum += operation->bytes_left();
  return sum;
}

void SendQueue::remove(Operation& operation) {
  const auto at = std::find(heap_.begin(), heap_.end(), &operation);
  if (at == heap_.end()) return;
  operation.queued = false;
  heap_.erase(at);
  std::make_heap(heap_.begin(), heap_.end(), younger);
}

bool SendQueue::contains(const Operation& operation) const {
  return std::find(heap_.begin(), heap_.end(), &operation) != heap_.end();
}

void SendQueue::check() const {
  for (const Operation* operation : heap_) {
    PCCL_ASSERT(operation->queued && !operation->downstream_lost);
  }
  PCCL_ASSERT(std::is_heap(heap_.begin(), heap_.end(), younger));
}

}  // namespace pccl::ring
