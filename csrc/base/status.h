// status: Status reports a failure that comes from outside the program. A plain value. Nothing
// below csrc/torch throws.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/code.h"
#include "csrc/base/ids.h"

namespace pccl {

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string message;
  PeerId peer{};  // the peer that the status is about, if any

  bool ok() const { return code == Code::kOk; }
  friend bool operator==(const Status&, const Status&) = default;
};

// Runs `work`. Returns kSystem if it throws, for example because there is no memory. It is for work
// on our own threads, which no exception may leave, and for work whose failure must not stop its
// caller.
template <typename Work>
Status caught(Work&& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    return {Code::kSystem, "no memory left", {}};
  } catch (const std::exception& error) {
    return {Code::kSystem, error.what(), {}};
  }
  return {};
}

// Reports that the other side has violated PROTOCOL.md. The connection to it must then be closed.
// `what` names the violation.
inline Status violation(std::string what) {
  PCCL_ASSERT(!what.empty());
  return {Code::kProtocol, std::move(what), {}};
}

}  // namespace pccl
