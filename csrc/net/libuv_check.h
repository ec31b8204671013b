// libuv_check: checks that the libuv in use is the one that pccl was built with.
// libtorch_cpu.so exports its own copy of libuv. If it is loaded with global symbols, its copy
// replaces a part of ours, and then two versions work on the same structures.
// Failure: check_libuv() returns the Status; it changes nothing.
#pragma once

#include <span>
#include <string>

#include "csrc/base/status.h"

namespace pccl::net {

// Call it once, before the first Loop. kInvalidState if functions of libuv come from another
// library, or if its version has another major number or is older than the one pccl was built with.
// The message says which and what to do.
Status check_libuv();

// The library in which one function of libuv was found.
struct LibuvSymbol {
  std::string name;     // "uv_run"
  std::string library;  // "/usr/lib/x86_64-linux-gnu/libuv.so.1"
};
// The decision of check_libuv(), without the lookup. `self` is the library that contains this code;
// libuv may be a part of it. Versions have the form of UV_VERSION_HEX.
Status judge_libuv(std::span<const LibuvSymbol> symbols, const std::string& self,
                   unsigned built_with, unsigned running);

}  // namespace pccl::net
