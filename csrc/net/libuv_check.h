// libuv_check: checks that the libuv in use is the one that pccl was built with.
// libtorch_cpu.so exports its own copy of libuv. If it is loaded with global symbols, its copy
// replaces a part of ours, and then two versions work on the same structures.
// The name of the file does not matter: a wheel may bring its own libuv, as libuv-1a2b3c4d.so.
// Failure: check_libuv() returns the Status; it changes nothing.
#pragma once

#include <span>
#include <string>

#include "csrc/base/status.h"

namespace pccl::net {

// Call it once, before the first Loop. kInvalidState if functions of libuv come from another
// library than the one that this code is linked with, or from torch; or if its version has another
// major number or is older than the one pccl was built with. The message says which and what to do.
// `torch_code`: any function of torch; null if there is no torch in this process.
Status check_libuv(const void* torch_code);

// The libraries of one function of libuv.
struct LibuvSymbol {
  std::string name;     // "uv_run"
  std::string library;  // whose function is called: "/usr/lib/x86_64-linux-gnu/libuv.so.1"
  std::string linked;   // the one that this code is linked with, found without global symbols
};
// The decision of check_libuv(), without the lookup. `self` is the library that contains this code;
// libuv may be a part of it. `torch` is torch's own library, or empty. Versions have the form of
// UV_VERSION_HEX.
Status judge_libuv(std::span<const LibuvSymbol> symbols, const std::string& self,
                   const std::string& torch, unsigned built_with, unsigned running);

}  // namespace pccl::net
