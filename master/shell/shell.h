// Shell: the runtime of a master, with a loop, a listener, a connection per peer, a MasterCore per
// run, and the journal, if there is one. The first Hello that names a run creates it. A run is
// forgotten when it has no peers and nothing to remember. With a journal, runs outlive the process.
// The `pccl-master` executable owns one. A process that is rank 0 of fixed groups embeds one, which
// serves these groups as runs (csrc/torch/hosted_run.h). Any thread but the loop's own may call the
// methods.
// Failure: only open() fails. If a peer breaks the protocol, it loses its connection.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/base/token.h"
#include "csrc/net/socket.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/version.h"
#include "master/shell/notifier.h"
#include "master/state/resumption.h"

namespace pccl::master {

namespace http {
struct Place;
}
class Meetings;

constexpr uint16_t kPortDefault = 48148;
constexpr int kKeepDaysDefault = 30;
constexpr int kKeepDaysMax = 36500;

// How a master remembers its runs.
struct Remembering {
  std::string path;    // path of its journal; empty: the master forgets
  bool fresh = false;  // set the existing journal aside
  std::optional<Resumption> resume_from = {};
  int keep_days = kKeepDaysDefault;  // days until a finished run is forgotten
  // Called on a thread of the shell when the journal can no longer be written: the master must end.
  std::function<void(const Status&)> on_failure = {};
};

// Maximum bytes that a master buffers for all connections together (limits.h). Tests use less.
struct Budgets {
  size_t undecoded = protocol::kUndecodedBytesMax;
  size_t unsent = protocol::kUnsentBytesMax;
};

// The tokens of the admitted peers. Without a keyring and a shared token, all peers are admitted,
// in plain text.
struct Tokens {
  std::string keyring = {};                // the path of a keyring
  std::optional<pccl::Token> shared = {};  // the token that all peers of a hosted master share
  bool handles = false;  // the keys of handles serve, for a reconfigure (proofs.h)
};

class Shell {
 public:
  // Listens on `at`. Fails with kSystem if the address, the journal or the keyring is not
  // available, and with kInvalidArgument if it is not clear which state to resume. `versions`:
  // protocol versions that the master speaks. `shares`: as in master::Options, for experiments.
  static Result<std::unique_ptr<Shell>> open(
      const net::Endpoint& at, const Remembering& remembering = {}, const Budgets& budgets = {},
      const protocol::VersionRange& versions = protocol::kSpoken, Tokens tokens = {},
      std::vector<uint16_t> shares = {});
  // Ends at once; see drain().
  ~Shell();

  uint16_t port() const;
  // The summary of the journal at the start, as lines for the operator.
  const std::vector<std::string>& remembered() const;
  // Opens a control socket (control_socket.h) at `path`, for a master without a journal. Fails with
  // kSystem. Waits for the loop. REQUIRES: there is none yet.
  Status open_control(const std::string& path);
  // From now on, findings that stand are logged, and a command of the operator runs for them.
  // Returns at once. REQUIRES: it is called once.
  void notify(Notifier::Options to);
  // Serves the pages of this master (http_server.h), and returns their URL. Fails like
  // HttpServer::open(). Waits for the loop. REQUIRES: there are none yet.
  Result<std::string> open_http(const http::Place& place, const std::string& proxy);
  // The number of tokens in the keyring at the start.
  size_t token_count() const;
  // Lets peers into this run. From the first call on, peers are let into announced runs only. A
  // hosted master announces the runs of its process, so a peer that comes after the end of its run
  // is refused.
  void announce(const std::string& run);
  // Calls `what` on the loop, with the meetings of the reconfigurable groups of this process
  // (meetings.h), and waits for it.
  void with_meetings(const std::function<void(Meetings&)>& what);
  // Calls `then` on the loop once, when the run has ended because all its peers have left or are
  // lost. If there is no such run, it calls `then` at once.
  void when_over(const std::string& run, std::function<void()> then);
  // Whether some peer of the run is here, or may come back. Waits for the loop.
  bool lives(const std::string& run) const;
  // The process of the master wants to exit. The future is ready when the run needs its master no
  // longer (host_exit.h).
  std::future<void> host_exits(const std::string& run, Duration patience);
  // The peers of the run, for people. Waits for the loop.
  std::string awaited_peers(const std::string& run) const;
  // Ends a run, because its host will leave it. A later loss is reported to the peers as this end,
  // and no other peer is let in. Returns when this has begun: what a peer of this process sends
  // later, as the Leave of the host, comes later.
  void start_draining(const std::string& run);
  // Waits until the run has ended, all decisions have reached its peers and all of them are
  // dismissed (Farewell), or `at_most` has passed.
  void drain(const std::string& run, Duration at_most);

 private:
  struct Impl;
  Shell();
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::master
