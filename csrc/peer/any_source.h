// AnySource: the receives from any source that have not found their send yet. It asks the master
// for sends to this peer (PROTOCOL.md, section 3), and passes a receive on when it gets one. From
// then on the receive is an ordinary operation. It belongs to Operations.
// Invariants:
//   1. A receive is here from its call until it is taken, ended by a failure, or timed out.
//   2. Receives under one tag are taken in the order of their calls.
//   3. If a receive that is not held waits, the master has been asked under its tag, unless the
//      epoch is ending. It is asked again after a reconnection and in the next epoch. A receive
//      belongs to the members of its call: if they change, it fails, since a send may be missing.
//   4. Held receives were called while a vote for update_topology was open. They wait for nothing
//      but its answer.
//   5. There are at most kAwaitedTagsMax tags.
// It never decides which of two receives gets a send, and never promises a send to a receive. A
// receive that names its source takes the next send of that source at once.
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
    Epoch members;  // the first epoch with the members of the call
    bool held = false;
  };

  // kInvalidState if it would be under one tag too many.
  Status check_room(const OpRequest& request) const;
  // REQUIRES: check() and check_room() were ok
  void call(const OpRequest& request, bool held);
  void open_posting();                               // held receives are held no longer
  bool staged(Handle handle, const Status& status);  // false: unknown

  // Whether a receive waits under this tag for a send.
  bool waits(const std::string& tag) const;
  Receive take(const std::string& tag);   // the oldest. REQUIRES: waits()
  void answered(const std::string& tag);  // a SendBegun was handled, whether it was taken or not
  void ask_again();                       // a new connection to the master, or a new epoch

  // kProtocol if the master does not answer a question of this epoch.
  Status check(const protocol::SendBegun& answer) const;
  // Every other member of the fixed world has left, and none of their sends is open any more.
  void no_sender(const std::string& tag);
  // Ends those whose group is broken, or has changed since their call.
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
    size_t held = 0;     // of these
    uint32_t asked = 0;  // number of sends that the master was asked for, and has not named
  };
  void start(Receive& receive);
  // The error of a receive that was called by these members and found no send; ok if it can wait.
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
