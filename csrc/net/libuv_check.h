// libuv_check: whether the libuv that we call is the one we were built with. libtorch_cpu.so
// exports a copy of its own; loaded with its symbols made global, it takes over part of ours, and
// two versions work on the same structures.
#pragma once

#include <span>
#include <string>

#include "csrc/base/status.h"

namespace pccl::net {

// Call once before the first Loop. kInvalidState when functions of libuv come from another library
// or from an older version; the message says which and what to do.
Status check_libuv();

// Where one function of libuv was found.
struct LibuvSymbol {
  std::string name;     // "uv_run"
  std::string library;  // "/usr/lib/x86_64-linux-gnu/libuv.so.1"
};
// The judgement alone: `self` is the library that we are in (libuv may be a part of it), versions
// as UV_VERSION_HEX.
Status judge_libuv(std::span<const LibuvSymbol> symbols, const std::string& self,
                   unsigned built_with, unsigned running);

}  // namespace pccl::net
