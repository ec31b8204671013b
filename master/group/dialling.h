// Dialling: sends Dial and Forget to the peers of a group (PROTOCOL.md, section 2). Links (in the
// membership) has the state of each link. Group owns one, and decides on the consequences of a dead
// link for the members.
#pragma once

#include <set>

#include "master/context.h"
#include "master/members/membership.h"

namespace pccl::master {

class Connections;

class Dialling {
 public:
  Dialling(Context& context, Connections& connections, Membership& membership)
      : context_(context), connections_(connections), membership_(membership) {}

  // Makes one of the two dial the other. Links::dials() decides which one.
  void link(PeerId a, PeerId b);
  // Notes the report, and sends the next Dial if the link is dead. REQUIRES: `report.peer` is
  // another peer.
  Links::News on(PeerId from, const protocol::LinkReport& report);
  // A tick has passed. Makes waiting peers dial those that cannot reach them, if this may be known
  // now (Links::View::shows_failure()).
  void tick();
  // The peer is connected again: repeats every message that it may have missed. A superfluous Dial
  // does no harm. `needed`: peers that are gone, but whose links are still needed. They are not
  // forgotten yet.
  void repeat(PeerId peer, const std::set<PeerId>& needed);
  // This peer is gone for good.
  void forget(PeerId gone);

 private:
  void dial(PeerId dialler, PeerId target);
  void log_unreachable(PeerId from, const protocol::LinkReport& report);

  Context& context_;
  Connections& connections_;
  Membership& membership_;
};

}  // namespace pccl::master
