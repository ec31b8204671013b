// DataThread: the data loop of a process, with the memory pool of the engines on it. All Shells of
// a process may share it, and it ends with the last of them.
// Invariant: only the loop uses the pool.
#pragma once

#include "csrc/memory/pool.h"
#include "csrc/net/loop.h"

namespace pccl::ring {

struct DataThread {
  memory::Pool pool;
  net::Loop loop{"pccl-data"};
};

}  // namespace pccl::ring
