#include "csrc/ring/credits.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::ring {
namespace {

int yields(const Task& task) { return task.filler ? 2 : task.pulled ? 1 : 0; }

// Whether `a` leaves after `b`.
bool younger(const Operation* a, const Operation* b) {
  if (yields(a->task) != yields(b->task)) return yields(a->task) > yields(b->task);
  return a->serial > b->serial;
}

}  // namespace

bool UnexpectedCredits::keep(OpKey op, uint64_t digest, uint64_t value) {
  if (credits_.size() >= protocol::kOpsOpenMax && !credits_.contains(op)) return false;
  credits_[op] = {digest, value};
  return true;
}

uint64_t UnexpectedCredits::take(OpKey op, uint64_t digest) {
  const auto at = credits_.find(op);
  if (at == credits_.end()) return 0;
  const Credit credit = at->second;
  credits_.erase(at);
  return credit.digest == digest ? credit.value : 0;
}

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

void UnexpectedCredits::check() const { PCCL_ASSERT(credits_.size() <= protocol::kOpsOpenMax); }

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
