// Insider: makes a simulated peer lie to the master. Its core is the usual one, and the Insider
// changes what the core sends, or sends more, at random. Such a member is a volunteer of many with
// a valid token. PeerNode owns it. These are the lies of docs/operating.md, section 7: about what
// was done (StateReport, Resume, Done, AbortRequest, AbortAnswer), and, once each, in a Begin, a
// LinkReport and a Vote.
#pragma once

#include <set>
#include <vector>

#include "csrc/protocol/messages.h"
#include "tests/sim/random.h"

namespace pccl::sim {

class Insider {
 public:
  explicit Insider(uint64_t seed) : chance_(seed) {}

  // The messages that leave in place of this one.
  std::vector<protocol::Message> instead_of(protocol::Message message);
  uint64_t lies() const { return lies_; }

 private:
  bool tempted() { return chance_.once_in(8); }
  // Whether it lies about this operation: not about a send, whose end the others do not all notice.
  bool is_of_interest(OpKey op) const { return of_interest_.contains(op); }
  void lie() { ++lies_; }
  void change(protocol::Begin& begin);
  void change(protocol::AbortAnswer& answer);
  void change(protocol::Vote& vote);
  void change(protocol::StateReport& report);
  protocol::Resume changed(protocol::Resume resume);
  protocol::OpState some_state() { return static_cast<protocol::OpState>(chance_.below(3)); }

  Random chance_;
  uint64_t lies_ = 0;
  std::set<OpKey> of_interest_;
  bool has_described_ = false, has_dropped_ = false, has_voted_ = false;  // lies of once
};

}  // namespace pccl::sim
