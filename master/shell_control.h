// ControlSocket: a Unix socket beside the journal, at which people on the master's machine ask it
// what it serves, and tell it what to forget (control.h says in which words). One request a
// connection: a line, its answer, the end. A client keeps its side open until it has read the
// answer. Only the master's own user and root get in.
// Belongs to the loop that opened it, and is destroyed there; the handler is called there. The
// journal's lock has to be held meanwhile: it makes the socket's place ours. The file goes with the
// object, unless another has taken its place.
// Clients that say nothing, too much, or do not read their answer cost a connection, never a wait.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/net/loop.h"
#include "master/control.h"

namespace pccl::master {

class ControlSocket {
 public:
  static constexpr size_t kConnectionsMax = 16;  // at once; further ones are closed
  static constexpr size_t kRequestBytesMax = 64u << 10;
  // So long may a client take to ask, and then to read.
  static constexpr Duration kPatience = std::chrono::seconds(5);
  using Handler = std::function<nlohmann::json(const ControlRequest&)>;

  // The socket of the master with this journal.
  static std::string path_of(const std::string& journal) { return journal + ".sock"; }

  // Replaces the socket that a dead master has left at `path`. kSystem when something else is
  // there, or the system refuses.
  static Result<std::unique_ptr<ControlSocket>> open(net::Loop& loop, const std::string& path,
                                                     Handler handler);
  ~ControlSocket();

 private:
  struct Inside;
  ControlSocket();
  std::unique_ptr<Inside> inside_;
};

}  // namespace pccl::master
