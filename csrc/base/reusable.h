// Reusable: an object that is lent to one user at a time, and made again only if the last user
// still has it. The lending thread sees all that the last user did with the object, on any thread.
// The count of a shared_ptr does not give that: reading the count orders nothing.
// One thread at a time may call its methods. A lent object may be given back on any thread, and may
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
  // It is given back when the last copy of the pointer goes. REQUIRES: idle().
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
