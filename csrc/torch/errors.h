// Where Status values become exceptions, and the only file that knows which Python class belongs to
// which Code; the classes themselves are documented in pccl_backend/errors.py. Beside it, the
// little of the interpreter that waiting needs. Everything may be called on any thread, with or
// without the GIL.
#pragma once

#include <exception>
#include <string>

#include "csrc/base/status.h"

namespace pccl::torch_layer {

// Fetches the classes from pccl_backend.errors. Call it once, with the GIL, before anything below.
void load_error_types();

// REQUIRES: !status.ok(). Making one takes no GIL, so that the control loop may.
std::exception_ptr to_exception(const Status& status);
[[noreturn]] void raise(const Status& status);
[[noreturn]] void raise_value_error(const std::string& message);
[[noreturn]] void raise_not_implemented(const std::string& message);

// Whether a signal handler has raised (Ctrl-C); for the main thread only, on others always false.
// What it raised is then pending, and raise_interrupt() is to be called on the same thread.
bool interrupted();
[[noreturn]] void raise_interrupt();

// Lets others run Python while this thread waits; does nothing if it does not hold the GIL, or
// nobody does any more.
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
