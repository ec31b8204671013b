// Reusable: an object that is lent to one user at a time. Its owner makes a new object only if the
// last user has not given the old one back. When idle() returns the object, the calling thread sees
// all that the last user did with it, on any thread. The count of a shared_ptr does not ensure
// this: a thread that reads the count does not yet see the writes of other threads.
// One thread at a time may call the methods. A lent object may be given back on any thread, and may
// outlive the Reusable.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl {

template <typename T>
class Reusable {
 public:
  // The object, if it is not lent; else null.
  T* idle() const {
    const bool given_back = slot_ != nullptr && !slot_->lent.load(std::memory_order_acquire);
    return given_back ? &slot_->object : nullptr;
  }
  // Replaces the object. The user of the old one keeps it.
  T& emplace(auto&&... arguments) {
    slot_ = std::make_shared<Slot>(std::forward<decltype(arguments)>(arguments)...);
    return slot_->object;
  }
  // Lends the object. It is given back when the last copy of the pointer is destroyed.
  // REQUIRES: idle().
  std::shared_ptr<T> lend() {
    PCCL_ASSERT(idle() != nullptr);
    slot_->lent.store(true, std::memory_order_relaxed);
    return {&slot_->object,
            [slot = slot_](T*) { slot->lent.store(false, std::memory_order_release); }};
  }

 private:
  struct Slot {
    explicit Slot(auto&&... arguments) : object(std::forward<decltype(arguments)>(arguments)...) {}
    T object;
    std::atomic<bool> lent{false};
  };
  std::shared_ptr<Slot> slot_;
};

}  // namespace pccl
