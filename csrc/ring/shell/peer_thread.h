// PeerThread: the thread with the peer loop, and the memory pool of the engines on it. The control
// and the data plane of a peer are both on this loop: an operation passes from one to the other
// several times, and a wake-up of another thread costs more than its work. All peers of a process
// may share the thread, and it ends with the last peer.
// Invariant: only the loop uses the pool.
#pragma once

#include "csrc/memory/pool.h"
#include "csrc/net/loop.h"

namespace pccl::ring {

struct PeerThread {
  memory::Pool pool;
  net::Loop loop{"pccl-peer"};
};

}  // namespace pccl::ring
