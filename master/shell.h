// Shell of the master: a loop, a listener, a connection per peer, a MasterCore per run, and the
// journal, if there is one. Runs are made by the first Hello that names them, and forgotten when
// nobody is there and nothing is to be remembered; with a journal they outlive the process. Used by
// the `pccl-master` executable, and embedded in rank 0 of an env:// start. Methods may be called
// from any thread but the loop's own. Failure: only open() fails; what a peer does wrong costs its
// connection.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "csrc/base/status.h"
#include "csrc/net/socket.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/version.h"
#include "master/resumption.h"

namespace pccl::master {

// Whether only processes of this machine can reach a master that listens there.
bool is_loopback(const net::Endpoint& at);

constexpr int kKeepDaysDefault = 30;
constexpr int kKeepDaysMax = 36500;

// Where a master remembers its runs.
struct Remembering {
  std::string path;    // of its journal; empty: it forgets
  bool fresh = false;  // what the journal holds is set aside
  std::optional<Resumption> resume_from = {};
  int keep_days = kKeepDaysDefault;  // a finished run is forgotten after that
  // The journal can no longer be written, on a thread of the shell's: the master has to end.
  std::function<void(const Status&)> on_failure = {};
};

// A master keeps at most so many bytes for all connections together (limits.h). Tests have less.
struct Budgets {
  size_t undecoded = protocol::kUndecodedBytesMax;
  size_t unsent = protocol::kUnsentBytesMax;
};

class Shell {
 public:
  // Listens on `at`. kSystem when the address or the journal cannot be had, kInvalidArgument when
  // it is not clear what to resume. `versions`: of the protocol, that it speaks.
  static Result<std::unique_ptr<Shell>> open(
      const net::Endpoint& at, const Remembering& remembering = {}, const Budgets& budgets = {},
      const protocol::VersionRange& versions = protocol::kSpoken);
  // Ends at once; see drain().
  ~Shell();

  uint16_t port() const;
  // Waits until all that was decided has reached the peers, or `at_most` has passed.
  void drain(Duration at_most);

 private:
  struct Inside;
  Shell();
  std::unique_ptr<Inside> inside_;
};

}  // namespace pccl::master
