// Socket: an owned TCP file descriptor that is non-blocking, close-on-exec and TCP_NODELAY. A Unix
// socket works too, except for the methods that query its path.
// Every Socket is in a registry, and a forked child closes all of them (descriptors.h). Otherwise a
// DataLoader worker would hold a dead peer's connections open.
// Connector and Listener are asynchronous and belong to a loop. They accept names and IPv4 and IPv6
// literals, and report failures as a kSystem Status.
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
#include "csrc/base/log.h"
#include "csrc/base/path_info.h"
#include "csrc/base/result.h"
#include "csrc/net/loop.h"

namespace pccl::net {

using pccl::Endpoint;

enum class PathClass { kLocal, kWan };

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd);  // takes ownership and sets the flags; below 0: no socket
  ~Socket();                // closes, except in a forked child of the process that opened it
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  std::string peer_host() const;   // numeric address of the other end
  std::string local_host() const;  // numeric address of this end
  bool is_loopback() const;        // the other end is this machine's loopback
  PathInfo path() const;
  // From now on, closing this socket discards the bytes that have not left, and resets the
  // connection.
  void discard_at_end() const;
  // The number of bytes that the buffers of both ends now allow to be in flight; 0: not known.
  uint64_t buffers() const;
  // Adapts the socket to its path.
  //   kWan    Sends at the pace of the receiving end, not in bursts: bursts delay the
  //   acknowledgements of the other direction. Queues little more than the congestion window
  //   allows.
  //   kLocal  If `congestion`, replaces a congestion control that paces by itself: pacing halves
  //   the throughput of loopback.
  void tune(PathClass path, bool congestion) const;
  // Limits the send buffer. The socket then holds at most about twice `bytes` bytes that the other
  // end has not acknowledged, or fewer if the limit of the system is lower. 0: from now on the
  // system sizes the buffer.
  void hold_at_most(uint32_t bytes) const;
  // From now on the socket takes more bytes only while fewer than `bytes` bytes wait to be sent for
  // the first time.
  void limit_unsent(uint64_t bytes) const;
  // Sends at the pace of the receiving end, and at most at `bytes_per_second`.
  void pace(uint64_t bytes_per_second) const;
  static constexpr uint64_t kPaceAny = 1'000'000'000'000;  // faster than every network
  uint32_t segment() const;       // bytes of a full packet at present; 0: not known
  uint64_t bytes_queued() const;  // bytes that the other end has not acknowledged
  // Limits the size of TCP's segments in both directions. Call it before connect(), or on a
  // listener, which passes the limit on to the connections that it accepts later. 0: no limit.
  void limit_segment(uint32_t bytes) const;
  // True if nothing was sent for so long that congestion control restarts with the next send.
  bool would_begin_anew() const;
  // sendmsg() for the first bytes after an idle period, if would_begin_anew(). Congestion control
  // would restart with ten segments (RFC 5681, 4.1), which costs seven round trips on a long path.
  // This call keeps the window, as RFC 7661 does, but longer than the five minutes of that RFC. So
  // the caller must pace the next bytes according to the rate before the idle period. When bytes
  // are queued, Linux lets the congestion control decide whether it restarts, and bbr does not
  // restart. So the socket uses bbr during this call, if the system permits that; otherwise this is
  // a plain sendmsg().
  ssize_t send_after_silence(const msghdr& message) const;
  // Sets the congestion control. False if the system refuses it.
  bool set_congestion(const std::string& name) const;
  std::string congestion() const;
  bool paces_itself() const;  // whether the congestion control paces

 private:
  int fd_ = -1;
  unsigned fork_count_ = 0;  // fork_count() when the socket was opened (descriptors.h)
};

// Connector: an attempt to connect. It resolves `to` and tries each address in turn until one
// answers or `timeout` has passed. Then it calls back once, with the socket or with a kSystem
// Status that names the endpoint and the reason. The destructor cancels the attempt.
class Connector {
 public:
  using Callback = std::function<void(Result<Socket>)>;
  // `segment`: the limit for Socket::limit_segment(), in bytes; 0: no limit.
  Connector(Loop& loop, Endpoint to, Duration timeout, Callback callback, uint32_t segment = 0);
  ~Connector();
  LinkFault fault() const;  // why the attempt has failed

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// The host to listen on for connections from this machine only, with IPv4 and, if available, IPv6.
inline constexpr const char* kLoopback = "localhost";

// Listener: accepts connections on the endpoint `at`. An empty host means all addresses of this
// machine, IPv4 and IPv6. A name means all addresses of the name, and its lookup may block. Port 0
// means any free port. While the process has no descriptor left, new connections wait in the
// system's queue; the listener tries again, and nothing blocks.
class Listener {
 public:
  using Callback = std::function<void(Socket)>;
  // kSystem if it cannot listen on the address: "cannot listen on 127.0.0.1:48148: address already
  // in use".
  // `warn` writes a warning to the log.
  using Warn = std::function<void(const std::string&)>;
  static Result<std::unique_ptr<Listener>> open(Loop& loop, const Endpoint& at, Callback callback,
                                                Warn warn = log_warning);
  // Takes a socket that already listens, such as a Unix socket.
  Listener(Loop& loop, Socket listening, Callback callback, Warn warn = log_warning);
  ~Listener();
  uint16_t port() const;               // 0 for a Unix socket
  void limit_segment(uint32_t bytes);  // see Socket

 private:
  struct Impl;
  Listener(Loop& loop, std::vector<Socket> listening, Callback callback, Warn warn);
  std::shared_ptr<Impl> impl_;
};

}  // namespace pccl::net
