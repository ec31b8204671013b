// library_check: checks that the libuv and the OpenSSL in use are those that pccl was built with.
// libtorch_cpu.so exports its own copy of libuv. If libtorch_cpu.so is loaded with global symbols,
// its copy replaces a part of ours, and then two versions work on the same structures.
// The name of the file does not matter: a wheel may bring its own libuv, for example as
// libuv-1a2b3c4d.so.
// Failure: check_libraries() returns the Status; it changes nothing.
#pragma once

#include <array>
#include <span>
#include <string>

#include "csrc/base/status.h"

namespace pccl::net {

// Call it once, before the first Loop and the first Tls. kInvalidState in these cases:
//   - Functions of libuv come from torch, or from a different library than the one that this code
//     is linked with.
//   - libuv or OpenSSL has a different major version than the one that pccl was built with, or an
//     older minor version.
//   - OpenSSL cannot load its algorithms.
// The message names the case and the remedy.
// `torch_code`: any function of torch; null if there is no torch in this process.
Status check_libraries(const void* torch_code);

// The libraries that one function of libuv comes from.
struct LibuvSymbol {
  std::string name;     // "uv_run"
  std::string library;  // has the called function: "/usr/lib/x86_64-linux-gnu/libuv.so.1"
  std::string
      linked;  // has the function that this code is linked with; found without global symbols
};
// The decisions of check_libraries(), without the search for the libraries. `self` is the library
// that contains this code; libuv may be a part of it. `torch` is torch's own library, or empty.
Status judge_libuv(std::span<const LibuvSymbol> symbols, const std::string& self,
                   const std::string& torch);
using LibraryVersion = std::array<unsigned, 3>;  // major, minor, patch
Status judge_version(const std::string& library, const LibraryVersion& built_with,
                     const LibraryVersion& running);

}  // namespace pccl::net
