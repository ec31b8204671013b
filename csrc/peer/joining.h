// Joining is the wait of a peer for its master and for its admission: the limits of this wait, and
// its texts for the user. It belongs to the PeerCore, which ends the join when Joining returns an
// error, and which interprets the messages of the master.
// Invariant: it has no deadline before the join begins, nor once the peer is a member.
#pragma once

#include <optional>
#include <string>

#include "csrc/base/status.h"
#include "csrc/peer/context.h"
#include "csrc/peer/membership.h"

namespace pccl::peer {

class Joining {
 public:
  Joining(Context& context, const Membership& membership)
      : context_(context), membership_(membership) {}

  void begin(Handle handle);
  Handle handle() const { return handle_; }  // of the join
  protocol::Hello hello() const;             // the introduction of this peer

  // kProtocol if this peer cannot take part in the run.
  Status check(const protocol::Welcome& welcome) const;
  // The master seems to refuse the token of this peer. Returns whether this ends the join. The
  // first refusal does not: nothing proves it, so somebody on the path may have forged it.
  bool on_refusal();
  // The reconfigure that this join is for; null: it is for none, or over.
  const protocol::Rendezvous* meets() const {
    return joins() && context_.options.rendezvous ? &*context_.options.rendezvous : nullptr;
  }
  void on_welcome();    // the master has answered
  void on_admission();  // this peer has become a member
  // A Notice of the master: the reason why this peer waits or, for a member, news about its call.
  void on_notice(const std::string& text);
  // Time has passed. Returns the error that ends the join, or ok. `closed_why`: the reason why the
  // last attempt to connect failed; may be empty.
  Status on_time(const std::string& closed_why);
  std::optional<Instant> deadline() const;

 private:
  uint32_t founders() const;  // number of peers that begin together
  bool joins() const;         // the join has begun, and this peer is not a member yet
  bool found_master() const;  // the master has answered
  bool warns() const;         // it warns after some time that no master answers
  Duration search_max() const;
  Duration join_max() const;
  Status too_late() const;
  std::string gives_up() const;  // "; this process gives up in 30 s"

  Context& context_;
  const Membership& membership_;
  Handle handle_ = 0;
  Instant since_;
  bool warned_ = false;
  int refusals_ = 0;
  std::string notice_;  // text of the master's latest Notice
};

// The error of a reconfigure whose host, where its peers meet, is not there any more.
Status host_lost(const protocol::Rendezvous& meets, const std::string& why);

}  // namespace pccl::peer
