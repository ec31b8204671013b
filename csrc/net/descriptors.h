// descriptors: the registry of all sockets that pccl has open in this process. A forked child
// closes all of them. Otherwise a DataLoader worker would hold the connections of a dead peer open,
// and all other processes would not see that the peer is dead.
// Any thread may call these functions. The registry is a fixed structure without locks, because a
// child may use only such structures between fork and exec.
#pragma once

#include <cstddef>

namespace pccl::net {

// The number of forks between the process that loaded pccl and this process. An object that stores
// the number can later detect that it is in a forked child, where its descriptors are closed and
// its threads do not exist.
unsigned fork_count();

// ForkGuard: while one exists, fork() waits. So no child is forked between the call that opens a
// descriptor and remember_descriptor(), which registers it. Hold a ForkGuard only during these two
// calls. REQUIRES: this thread holds no other ForkGuard.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
};

// Opens /dev/null for each of the descriptors 0 to 2 that is closed. They are closed, for example,
// if a shell has started the program by `program 0<&- 2>&-`. Otherwise a socket or a file would get
// such a number: libuv aborts when it closes such a socket, and output to stderr would be written
// to such a file.
void open_standard_descriptors();

// Returns the largest number of descriptors that this process may have open, sockets and files
// together (ulimit -n).
size_t descriptors_max();

// Whether this process can open `count` descriptors now. Other threads may use them up afterwards.
bool has_room(size_t count);

// Returns the largest number of pending connections that a process keeps: a quarter of
// descriptors_max(), but at most `wanted` and at least 1. The limit is needed because anybody can
// open such connections.
size_t pending_max(size_t wanted);

// The number of descriptors that pccl leaves to the application, so that the application can open
// its own files even if many strangers connect to pccl. A process with a low limit leaves a quarter
// of its limit.
constexpr size_t kLeftToApplication = 64;
// Whether too few descriptors are left after the new descriptor `fd`: fewer than kLeftToApplication
// + `more`, or fewer than a quarter of the limit if a quarter is less. A new descriptor gets the
// lowest free number, so all lower numbers are open.
bool is_scarce(int fd, size_t more);

// Registers `fd`: from now on a forked child closes it. A descriptor number of 2^20 or above is not
// registered.
void remember_descriptor(int fd);

// Removes `fd` from the registry and closes it. REQUIRES: no ForkGuard on this thread.
void close_descriptor(int fd);

}  // namespace pccl::net
