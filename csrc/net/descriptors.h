// descriptors: the registry of all sockets that pccl has open in this process. A forked child
// closes all of them. Otherwise a DataLoader worker would hold a dead peer's connections open, and
// hide its death from all other processes.
// Any thread may call these functions. The registry is a fixed structure without locks, because a
// child may use only such structures between fork and exec.
#pragma once

#include <cstddef>

namespace pccl::net {

// The number of forks between the process that loaded pccl and this process. An object that stores
// the number can later detect that it is in a forked child, where its descriptors are closed and
// its threads do not exist.
unsigned fork_count();

// ForkGuard: delays fork() while a descriptor is created and remembered. Hold it for these two
// calls only. REQUIRES: this thread holds no other one.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
};

// Opens /dev/null for each of the descriptors 0 to 2 that is closed, as it is in a process that was
// started by `program 0<&- 2>&-`. Otherwise a socket or a file would get the number: libuv aborts
// when it closes such a socket, and output to stderr would be written to such a file.
void open_standard_descriptors();

// The most descriptors that this process may have open, sockets and files together (ulimit -n).
size_t descriptors_max();

// Whether this process can open `count` descriptors now. Other threads may take them meanwhile.
bool has_room(size_t count);

// The most pending connections that a process keeps: a quarter of descriptors_max(), but at most
// `wanted` and at least 1. The limit is needed because anybody can open such connections.
size_t pending_max(size_t wanted);

// Descriptors that are left to the application, so that it can open its own files no matter who
// connects to pccl. A process with a low limit leaves a quarter of its limit.
constexpr size_t kLeftToApplication = 64;
// Whether the new descriptor `fd` shows that fewer than kLeftToApplication + `more` descriptors are
// left, or fewer than a quarter of the limit if that is less. A new descriptor takes the lowest
// free number, so all lower numbers are open.
bool is_scarce(int fd, size_t more);

// Registers `fd`: from now on a forked child closes it. A descriptor number of 2^20 or above is not
// registered.
void remember_descriptor(int fd);

// Removes `fd` from the registry and closes it. REQUIRES: no ForkGuard on this thread.
void close_descriptor(int fd);

}  // namespace pccl::net
