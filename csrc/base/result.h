// result: Result<T> is a T, or the Status with the reason why there is none. A plain value.
#pragma once

#include <utility>
#include <variant>

#include "csrc/base/assert.h"
#include "csrc/base/status.h"

namespace pccl {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}
  Result(Status status) : content_(std::move(status)) { PCCL_ASSERT(!this->status().ok()); }

  bool ok() const { return std::holds_alternative<T>(content_); }
  // REQUIRES: ok().
  T& value() {
    PCCL_ASSERT(ok());
    return std::get<T>(content_);
  }
  const T& value() const {
    PCCL_ASSERT(ok());
    return std::get<T>(content_);
  }
  // REQUIRES: !ok().
  const Status& status() const {
    PCCL_ASSERT(!ok());
    return std::get<Status>(content_);
  }

 private:
  std::variant<T, Status> content_;
};

}  // namespace pccl
