// Surfaces: where people look at a master, and give it orders: its control socket and its pages.
// The Shell owns it, on its loop, and destroys it before the runs and the proofs. With a keyring,
// the keyring closes first, because it calls answers of the control socket.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "csrc/base/result.h"
#include "csrc/net/loop.h"
#include "master/http/place.h"
#include "master/shell/control_socket.h"
#include "master/shell/http_server.h"

namespace pccl::master {

class Proofs;
class Runs;

class Surfaces {
 public:
  Surfaces(net::Loop& loop, Runs& runs, const Proofs& proofs)
      : loop_(loop), runs_(runs), proofs_(proofs) {}

  // Opens a control socket at `path`. Fails with kSystem. REQUIRES: there is none yet.
  Status open_control(const std::string& path);
  // Opens the pages, and returns their URL. Fails like HttpServer::open(). REQUIRES: there are none
  // yet.
  Result<std::string> open_http(const http::Place& place, const std::string& proxy);
  // These tokens have left the keyring.
  void revoke(const std::set<TokenId>& tokens);

 private:
  void answer(const ControlRequest& request, const ControlSocket::Answer& then);

  net::Loop& loop_;
  Runs& runs_;
  const Proofs& proofs_;
  std::unique_ptr<ControlSocket> control_;  // with a journal, and in a process of a peer
  std::unique_ptr<HttpServer> http_;        // with --http
};

}  // namespace pccl::master
