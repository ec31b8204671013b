// Blocking: decides when the application of this peer blocks in waits, and reports it to the master
// (Blocked, PROTOCOL.md, section 3), which finds members that wait for each other. It asks the
// shell for the waits of the threads from time to time, and only while calls are open: a thread
// that waits causes no event. It belongs to the PeerCore. It reads the state of the calls, and
// changes none.
// Invariants:
//   1. The master has a report exactly while the calls of the report wait in the present epoch.
//      Without a connection it has none, and repeat() sends it again.
//   2. A report is withdrawn before the application's next call leaves.
//   3. Each call of a report has been waited for by one thread for kBlockedAfter.
#pragma once

#include <optional>
#include <set>

#include "csrc/peer/context.h"

namespace pccl::peer {

class Joint;
class Membership;
class Operations;

class Blocking {
 public:
  // The time between two looks at the waits.
  static constexpr Duration kLookEvery = std::chrono::milliseconds(250);

  // The calls in which threads have waited for kBlockedAfter, as the shell knows them.
  struct Waits {
    std::set<Handle> operations;
    bool joint = false;
    bool certain = false, threads = false;  // as in protocol::Blocked
    bool any() const { return joint || !operations.empty(); }
  };
  Blocking(Context& context, const Membership& membership, const Operations& operations,
           const Joint& joint)
      : context_(context), membership_(membership), operations_(operations), joint_(joint) {}

  void called();  // the application makes a call
  void seen(const WaitsSeen& seen);
  // Withdraws the report if one of its calls does not wait any more.
  void update();
  void repeat();  // after Resumed
  void on_time();
  std::optional<Instant> deadline() const { return look_at_; }
  void check() const;  // asserts the invariants

 private:
  static Waits waits_of(const WaitsSeen& seen, Instant now);
  bool waits_in_joint_call() const;
  bool calls_are_open() const;
  void withdraw();

  Context& context_;
  const Membership& membership_;
  const Operations& operations_;
  const Joint& joint_;
  std::optional<Instant> look_at_;
  std::optional<protocol::Blocked> report_;  // the last one, unless it was withdrawn
};

}  // namespace pccl::peer
