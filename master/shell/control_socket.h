// ControlSocket: a Unix socket beside the journal. People on the master's machine use it to list
// the runs of a master, to forget them and to revoke tokens (control.h defines the requests). A
// connection carries one request: a line, its answer, the end. A client keeps its side open until
// it has read the answer.
// It belongs to the loop that opened it: it is destroyed there, and the handler is called there.
// Invariants:
// 1. Only the master's own user and root get in.
// 2. The journal's lock must be held for the life of the object: it makes the socket's path ours.
// 3. The destructor removes the file, unless another file has taken its place.
// Failure: a client that sends nothing, sends too much, or does not read its answer loses its
// connection. The master never waits for it.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/result.h"
#include "csrc/net/loop.h"
#include "master/operator/control.h"

namespace pccl::master {

class ControlSocket {
 public:
  static constexpr size_t kConnectionsMax = 16;  // at the same time; further ones are closed
  static constexpr size_t kRequestBytesMax = 64u << 10;
  // Maximum time for a client to send its request. It has the same time again to read the answer.
  static constexpr Duration kTimeout = std::chrono::seconds(5);
  using Answer = std::function<void(const nlohmann::json&)>;
  // Calls `answer` once, at once or later, on the loop, and never after the socket is destroyed.
  using Handler = std::function<void(const ControlRequest&, const Answer& answer)>;

  // The socket path of the master with this journal.
  static std::string path_of(const std::string& journal) { return journal + ".sock"; }

  // Replaces the socket that a dead master has left at `path`. Fails with kSystem if another kind
  // of file is there, or if the system refuses.
  static Result<std::unique_ptr<ControlSocket>> open(net::Loop& loop, const std::string& path,
                                                     Handler handler);
  ~ControlSocket();

 private:
  struct Impl;
  ControlSocket();
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::master
