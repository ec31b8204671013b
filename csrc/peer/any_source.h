// AnySource keeps the receives from any source that have no send yet. It asks the master to name
// sends to this peer (PROTOCOL.md, section 3). When the master names one, Operations takes the
// oldest receive under its tag, which is an ordinary operation from then on. AnySource belongs to
// Operations.
// Invariants:
//   1. A receive is here from its call until it is taken, ended by a failure, or timed out.
//   2. Receives under one tag are taken in the order of their calls.
//   3. While a receive that is not held waits, the master has a question for sends under its tag,
//      unless the epoch is ending. The question is repeated after a reconnection and in the next
//      epoch. If the members change after the call of a receive, the receive fails, since its
//      sender may have left.
//   4. A receive is held if it was called while a call of update_topology or optimize_topology was
//      open. It starts when that call ends.
//   5. There are at most kAwaitedTagsMax tags.
// AnySource never decides which of two receives gets a send, and never promises a send to a
// receive. A receive that names its source takes the next send of that source at once.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/peer/membership.h"

namespace pccl::peer {

class AnySource {
 public:
  AnySource(Context& context, const Membership& membership)
      : context_(context), membership_(membership) {}

  struct Receive {
    OpRequest request;
    std::optional<Instant> deadline;
    Status unfit;   // why its data cannot be staged
    Epoch members;  // the first epoch with the members that the application saw at the call
    bool held = false;
  };

  // kInvalidState if kAwaitedTagsMax other tags have receives already.
  Status check_room(const OpRequest& request) const;
  // REQUIRES: check() and check_room() were ok
  void call(const OpRequest& request, bool held);
  void open_posting();                               // starts the held receives
  bool staged(Handle handle, const Status& status);  // false: no such receive

  // Whether a receive waits under this tag for a send.
  bool waits(const std::string& tag) const;
  Receive take(const std::string& tag);   // the oldest. REQUIRES: waits()
  void answered(const std::string& tag);  // a SendBegun was handled, taken or not
  void ask_again();                       // a new connection to the master, or a new epoch

  // kProtocol if `answer` does not answer a question of this epoch.
  Status check(const protocol::SendBegun& answer) const;
  // Every other member of the fixed world has left, and none of their sends is open any more: all
  // receives that wait under `tag` fail.
  void no_sender(const std::string& tag);
  // Ends each receive, unless it is held, whose group is broken or has changed since its call.
  void end_changed();
  void end(const Status& why);  // this peer is out of the run
  void on_time();
  std::optional<Instant> deadline() const;

  size_t size() const { return receives_.size(); }
  size_t tag_bytes() const { return tag_bytes_; }
  void check() const;  // asserts the invariants

 private:
  struct Tag {
    std::set<Handle> receives;
    size_t held = 0;     // number of held receives in `receives`
    uint32_t asked = 0;  // number of sends that the master was asked for and has not named yet
  };
  void start(Receive& receive);
  // The error that ends a receive without a send, or ok if it can go on waiting. `members`: the
  // first epoch with the members that the application saw at the call.
  Status over(const OpRequest& request, Epoch members) const;
  // If `over` returns an error for a receive, ends that receive with the error.
  void end_if(const std::function<Status(const Receive&)>& over);
  void ask(const std::string& tag, Tag& about);
  Receive remove(Handle handle);

  Context& context_;
  const Membership& membership_;
  std::map<Handle, Receive> receives_;  // in the order of the calls
  std::map<std::string, Tag> tags_;
  std::set<std::pair<Instant, Handle>> deadlines_;
  size_t tag_bytes_ = 0;
};

// "recv(float32, 8 elements, from any rank) (layer.3)".
std::string any_source_name(const OpRequest& request);

}  // namespace pccl::peer
