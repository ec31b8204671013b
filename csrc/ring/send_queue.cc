#include "csrc/ring/send_queue.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::ring {
namespace {

size_t class_of(const Operation& operation) {
  if (operation.is_one_shot()) return 0;
  return operation.task.filler ? 3 : operation.task.pulled ? 2 : 1;
}

size_t level_of(const Operation& operation) {
  return static_cast<size_t>(operation.task.priority - protocol::kPriorityMin);
}

// Whether `a` leaves after `b`.
bool later(const Operation* a, const Operation* b) {
  if (class_of(*a) != class_of(*b)) return class_of(*a) > class_of(*b);
  if (a->task.priority != b->task.priority) return a->task.priority < b->task.priority;
  return a->serial > b->serial;
}

}  // namespace

size_t& SendQueue::count(const Operation& operation) {
  return counts_[class_of(operation)][level_of(operation)];
}

void SendQueue::push(Operation& operation) {
  PCCL_ASSERT(!operation.queued);
  operation.queued = true;
  ++count(operation);
  heap_.push_back(&operation);
  std::push_heap(heap_.begin(), heap_.end(), later);
}

// Whether an operation of the same class and a lower priority waits.
bool SendQueue::passes_others(const Operation& operation) const {
  const auto& levels = counts_[class_of(operation)];
  return std::any_of(levels.begin(), levels.begin() + static_cast<ptrdiff_t>(level_of(operation)),
                     [](size_t waiting) { return waiting > 0; });
}

// The place of the next operation in the heap.
size_t SendQueue::next() const {
  PCCL_DCHECK(!heap_.empty());
  const Operation& first = *heap_.front();
  if (passes_ < kPassesMax || !passes_others(first)) return 0;
  size_t oldest = 0;
  for (size_t at = 1; at < heap_.size(); ++at) {
    const bool passed =
        class_of(*heap_[at]) == class_of(first) && heap_[at]->task.priority < first.task.priority;
    if (passed && (oldest == 0 || heap_[at]->serial < heap_[oldest]->serial)) oldest = at;
  }
  return oldest;
}

void SendQueue::take_out(size_t at) {
  Operation& operation = *heap_[at];
  operation.queued = false;
  --count(operation);
  if (at == 0) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
  } else {
    heap_.erase(heap_.begin() + static_cast<ptrdiff_t>(at));
    std::make_heap(heap_.begin(), heap_.end(), later);
  }
}

Operation& SendQueue::pop() {
  PCCL_ASSERT(!heap_.empty());
  const size_t at = next();
  Operation& operation = *heap_[at];
  take_out(at);
  passes_ = passes_others(operation) ? passes_ + 1 : 0;
  return operation;
}

const Operation& SendQueue::first() const { return *heap_[next()]; }

uint64_t SendQueue::bytes_left() const {
  uint64_t sum = 0;
  for (const Operation* operation : heap_) sum += operation->bytes_left();
  return sum;
}

void SendQueue::remove(Operation& operation) {
  const auto at = std::find(heap_.begin(), heap_.end(), &operation);
  if (at != heap_.end()) take_out(static_cast<size_t>(at - heap_.begin()));
}

bool SendQueue::contains(const Operation& operation) const {
  return std::find(heap_.begin(), heap_.end(), &operation) != heap_.end();
}

void SendQueue::check() const {
  for (const Operation* operation : heap_) {
    PCCL_ASSERT(operation->queued && !operation->downstream_lost);
  }
  PCCL_ASSERT(std::is_heap(heap_.begin(), heap_.end(), later));
}

}  // namespace pccl::ring
