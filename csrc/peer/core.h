// PeerCore is one peer of one run as the control plane sees it. It is pure: only `step` changes its
// state, and `deadline` returns the time of the next step. Control (control.h) owns it and steps
// it on the peer loop. PROTOCOL.md is its specification.
//
// It talks to the master (messages), to the data plane (links, operations) and to the application
// (handles).
// Its parts:
//   connection     the connection to the master
//   token_choice   the choice of the token that this peer shows to the master
//   master_search  the time without a connection to the master
//   membership     phases, epochs, links; the topology that the application sees
//   joining        the wait for the master and for the admission
//   operation      the life of each collective
//   joint          the joint call under way
//   blocking       the waits of the application, for the master
//   reporter       the numbers of this peer, for people that watch the run
//   state_sync     the transfers of a shared state
//   link_probe     the measuring of a link
// Invariants:
//   1. Every handle that comes in with a call is finished exactly once, whatever happens.
//   2. The phase agrees with the connection: the connection is up while this peer introduces itself
//      (kHandshaking). It is not up before the join, nor once this peer is out of the run.
//   3. From Welcome on, this peer searches for its master (MasterSearch) exactly while the
//      connection is not up or Resumed is awaited. After Farewell it does not search, and every
//      operation has an outcome.
//   4. Posting is closed exactly while a call of update_topology or optimize_topology is open.
//   5. A settled joint call stays open only while tensors or operations are being drained.
//   6. A plan of shared state belongs to the open joint call, which is not settled.
//   7. After a reconfiguration, the open vote waits to be cast again only while the epoch is
//      frozen, or while an operation is being drained or has not begun again.
//   8. A peer that is out of the run has no open operation. When it is gone, no joint call is open,
//      and nothing is being drained.
// Failures: if the master sends a message that the protocol forbids, the peer closes the
// connection. Then it resumes the connection, or gives up the master. An event from our own shell
// that the tables forbid fails an assertion.
#pragma once

#include <memory>
#include <optional>

#include "csrc/base/status.h"
#include "csrc/peer/events.h"

namespace pccl::peer {

class PeerCore {
 public:
  explicit PeerCore(Options options);
  ~PeerCore();
  PeerCore(PeerCore&&) noexcept;

  void step(const Event& event, Instant now, Effects& effects);
  std::optional<Instant> deadline() const;
  // Every call but update_topology fails with this error; after Farewell, update_topology fails,
  // too. It is ok unless a loss, a broken link or the end of the master has broken the group in
  // this generation.
  const Status& broken() const;
  // The settings of the run. Before Welcome: the settings that this peer gives, and defaults for
  // the others.
  const protocol::RunSettings& settings() const;
  void check() const;  // asserts the invariants of the core and of its parts

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::peer
