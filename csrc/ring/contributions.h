// Contributions: the contributions of one-shot operations (one_shot.h) on one link. Each link has
// one; RingCore owns it.
// A contribution at its sender:
//   posted         the link is ready, the window has room    SendContribution
//   posted         the link is not ready, or has no room     waits
//   waiting        kOpen, kWindow; kCredit, a request        SendContribution, once there is room
// A contribution at its receiver, by the state of its operation there:
//   in flight      Land; after the last contribution, Combine
//   not posted     LandUnexpected; once posted, TakeUnexpected; once ended, DropUnexpected
//   ended          Discard
// Invariants:
//  (1) On a link with a ready lane, each contribution that is not sent waits in one queue.
//  (2) A kept contribution that has not fully arrived is landing on exactly one lane. The room that
//      kept contributions use in the window is given back when they are taken or dropped.
//  (3) Requested contributions have a window of their own, and go before all others.
// Failure: the other end breaks a rule: the link fails.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "csrc/base/ids.h"
#include "csrc/protocol/frames.h"
#include "csrc/ring/events.h"
#include "csrc/ring/one_shot.h"
#include "csrc/ring/op_table.h"
#include "csrc/ring/peer_link.h"

namespace pccl::ring {

class Contributions {
 public:
  explicit Contributions(PeerLink& link) : link_(link) {}  // REQUIRES: the link outlives this
  // The new epoch has no operations yet.
  void begin_epoch(Effects& effects);
  // The link went down. Its landings are revoked by RingCore.
  void lost(Effects& effects) const;

  // ---- Sending ----
  // The operation was posted. `requested`: the other end has asked for its contribution already.
  void begin(Operation& operation, bool requested, Effects& effects);
  void queue_all(OpTable& operations, Effects& effects);  // those that are not sent yet
  void serve(Effects& effects);
  // The other end has posted the operation, and needs our contribution before all others.
  void on_requested(Operation& operation, uint64_t digest, Effects& effects);
  void on_window(const protocol::FrameHeader& header, Effects& effects);

  // ---- Receiving ----
  // Returns why an arriving contribution breaks a rule; empty if it breaks none. `landing` becomes
  // its landing; it stays empty if the contribution is to be discarded. A contribution counts as
  // taken at once, unless it is kept for an operation that is not posted here yet.
  std::string judge(uint32_t lane, const protocol::FrameHeader& header, OpTable& operations,
                    InFlightChunk& landing, Effects& effects);
  void arrived(const InFlightChunk& landed, OpTable& operations, Effects& effects);
  void drop(OpKey op, Effects& effects);  // if one is kept

  void drain(const Operation& operation, Effects& effects);  // the operation has ended
  size_t kept() const { return kept_.size(); }
  bool keeps(OpKey op) const { return kept_.contains(op); }
  // Asserts the invariants. Returns the number of kept contributions that are landing.
  long check(const OpTable& operations) const;

 private:
  struct Kept {
    uint64_t digest = 0;
    uint32_t rank = 0, bytes = 0;
    bool absent = false;  // its sender is absent
    bool here = false;
  };

  Window& window(bool requested) { return requested ? requested_ : unrequested_; }
  bool send(Operation& operation, bool requested, Effects& effects);
  void take(Operation& operation, Effects& effects);
  void taken(bool requested, uint64_t bytes, Effects& effects);
  void request(Operation& operation, Effects& effects);
  void request_all(OpTable& operations, Effects& effects);
  void check_unsent(const OpTable& operations) const;

  PeerLink& link_;
  Window unrequested_{Window::kUnrequestedBytes};
  Window requested_{Window::kRequestedBytes};
  std::deque<Operation*> unsent_, unsent_requested_;  // operations whose contribution waits
  std::map<OpKey, Kept> kept_;                        // of operations that are not posted here
};

}  // namespace pccl::ring
