// descriptors: every socket that pccl has open in this process, so that a forked child can close
// them all. Else a DataLoader worker would hold a dead peer's connections open, and nobody would
// notice that the peer has died. Any thread. The registry is a fixed structure without locks: what
// a child may use between fork and exec.
#pragma once

#include <cstddef>

namespace pccl::net {

// How many forks lie between the process that loaded pccl and this one. Whoever remembers the
// number finds out whether it lives on in a child: there its descriptors are closed and its threads
// do not exist.
unsigned fork_count();

// Puts off fork() while a descriptor is being made and remembered. Hold it for these two calls
// only.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
};

// How many this process may have open, sockets and files together (ulimit -n).
size_t descriptors_max();

// How many connections that have not said who they are a process keeps, at most `wanted`: a quarter
// of what it may have open, since everybody can make them.
size_t strangers_max(size_t wanted);

// So many descriptors are left to the application: its own files must open whoever connects to us.
// A process that may have few open leaves a quarter of them.
constexpr size_t kLeftToApplication = 64;
// Whether `fd`, which is new, shows that fewer than those and `more` are left. A descriptor takes
// the lowest number that is free, so its number says how many are open at least.
bool is_scarce(int fd, size_t more);

// From now on a child closes `fd`. Beyond a million descriptors one is not remembered.
void remember_descriptor(int fd);

// Forgets and closes. REQUIRES: no ForkGuard on this thread.
void close_descriptor(int fd);

}  // namespace pccl::net
