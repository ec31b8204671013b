// Socket: an owned TCP file descriptor, non-blocking, close-on-exec, TCP_NODELAY; a Unix one does
// as well, for what does not ask about its path. Every one is in a registry that a forked child
// closes (pthread_atfork): else a DataLoader worker would hold a dead peer's connections open.
// connect() and Listener are asynchronous and belong to a loop. Names and IPv4 and IPv6 literals
// are accepted.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/endpoint.h"
#include "csrc/base/link_fault.h"
#include "csrc/base/path_info.h"
#include "csrc/base/status.h"
#include "csrc/net/loop.h"

namespace pccl::net {

using pccl::Endpoint;

enum class Way { kNear, kLong };

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd);  // takes ownership, sets the flags; below 0: no socket
  ~Socket();                // closes, unless this is a child of the process that opened it
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  std::string peer_host() const;   // numeric address of the other end
  std::string local_host() const;  // numeric address of this end
  bool is_loopback() const;        // the other end is this machine's loopback
  PathInfo path() const;
  // Bytes that the buffers of both ends let be under way, now; 0: not known.
  uint64_t buffers() const;
  // On a long way: sends at the pace at which the other end can take it instead of in clumps, which
  // delay the acknowledgements of what comes back, and takes little more than fits. On a near one:
  // if `congestion`, none that paces, which costs half of what loopback carries.
  void suit(Way way, bool congestion) const;
  // Takes no more than about twice so many bytes before the other end has acknowledged some, or
  // what the system allows if that is less; 0: as many as the system sees fit, from now on.
  void hold_at_most(uint32_t bytes) const;
  // Sends at the pace at which the other end can take it, and at most so fast.
  void pace(uint64_t bytes_per_second) const;
  static constexpr uint64_t kPaceAny = 1'000'000'000'000;  // beyond every network
  uint32_t segment() const;       // bytes of a full packet, now; 0: not known
  uint64_t bytes_queued() const;  // that the other end has not acknowledged
  // Limits TCP's segments. It has to be called before connect() or listen(); a listener passes it
  // on to what it accepts later. Both ends keep to it. 0: no limit.
  void limit_segment(uint32_t bytes) const;
  // Nothing was sent for so long that congestion control begins anew with what is sent now.
  bool would_begin_anew() const;
  // sendmsg(), of the first bytes after such a silence. Congestion control would begin anew with
  // ten segments (RFC 5681, 4.1), which costs a long way seven round trips. It keeps its window
  // instead, as RFC 7661 has it, though for longer than its five minutes: the caller has to pace
  // what follows by what was carried before. Linux asks the control in the moment when bytes are
  // queued, and bbr does without; so it is borrowed for this call, where the system allows it.
  // Where it does not this is sendmsg().
  ssize_t send_after_silence(const msghdr& message) const;
  // False if the system refuses it.
  bool set_congestion(const std::string& name) const;
  std::string congestion() const;
  bool paces_itself() const;  // its congestion control does

 private:
  int fd_ = -1;
  unsigned fork_count_ = 0;  // descriptors.h: of the process that opened it
};

// An attempt to connect: resolves `to`, tries every address in turn until one answers or `timeout`
// has passed, then calls back once with the socket or a kSystem Status naming the endpoint and the
// reason. Destroying it cancels.
class Connector {
 public:
  using Callback = std::function<void(Result<Socket>)>;
  // `segment`: of TCP, at most (Socket::limit_segment).
  Connector(Loop& loop, Endpoint to, Duration timeout, Callback callback, uint32_t segment = 0);
  ~Connector();
  LinkFault fault() const;  // of an attempt that has failed

 private:
  struct Inside;
  std::shared_ptr<Inside> inside_;
};

// A host to listen on: this machine only, by IPv4 and, where there is IPv6, by that, too.
inline constexpr const char* kLoopback = "localhost";

// Accepts connections on `at`. An empty host is every address of this machine, IPv4 and IPv6; a
// name is every address it has, and looking it up may block. Port 0 is any free one. When the
// process has no descriptor left it waits for one.
class Listener {
 public:
  using Callback = std::function<void(Socket)>;
  // kSystem when the address cannot be had: "cannot listen on 127.0.0.1:48148: address already in
  // use".
  static Result<std::unique_ptr<Listener>> open(Loop& loop, const Endpoint& at, Callback callback);
  // On a socket that listens already, such as a Unix one.
  Listener(Loop& loop, Socket listening, Callback callback);
  ~Listener();
  uint16_t port() const;               // 0 of a Unix socket
  void limit_segment(uint32_t bytes);  // see Socket

 private:
  struct Inside;
  Listener(Loop& loop, std::vector<Socket> listening, Callback callback);
  std::shared_ptr<Inside> inside_;
};

}  // namespace pccl::net
