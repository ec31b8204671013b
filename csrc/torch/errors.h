// errors: turns Status values into exceptions. This is the only file that assigns Python classes to
// Codes; pccl_backend/errors.py documents the classes. The file also has the few functions of the
// interpreter that a waiting thread needs. Any thread may call everything below load_error_types(),
// with or without the GIL.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "csrc/base/status.h"

namespace pccl::torch_layer {

// Fetches the classes from pccl_backend.errors. Call it once, with the GIL, before anything below.
void load_error_types();

// Makes the exception for `status`. It does not take the GIL, so the peer loop may call it.
// REQUIRES: !status.ok().
std::exception_ptr to_exception(const Status& status);
[[noreturn]] void raise(const Status& status);
[[noreturn]] void raise_value_error(const std::string& message);
[[noreturn]] void raise_not_implemented(const std::string& message);

// Returns whether a signal handler has raised (Ctrl-C). It can be true on the main thread only.
// Then the exception is pending, and the same thread must call raise_interrupt().
bool interrupted();
[[noreturn]] void raise_interrupt();

// Calls `work` with the GIL. Does not call it after the end of the interpreter.
void with_gil(const std::function<void()>& work);

// Lets other threads run Python while this thread waits. Does nothing if this thread does not hold
// the GIL, or if the interpreter is gone.
class ReleaseGil {
 public:
  ReleaseGil();
  ~ReleaseGil();
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  void* state_ = nullptr;
};

}  // namespace pccl::torch_layer
