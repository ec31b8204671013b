// TimeAccount: the time that the application's thread has spent in the calls of one group since
// this peer joined, by its cause. The rest of the time the application computes. It is pure: the
// shell reports the waits and the ends of operations, with their times.
// A wait for an operation has two parts: before the last member has called the operation, it waits
// for that member; after that, the data travels. The verdict names the last member. Where members
// agree without the master, the verdict comes after the end of the wait.
// Invariants:
//   1. The sum of all causes is at most the time since the start.
//   2. At most kOpenMax waits have no verdict yet, and at most kKnownMax verdicts no wait.
#pragma once

#include <cstdint>
#include <deque>
#include <map>

#include "csrc/base/clock.h"
#include "csrc/base/ids.h"

namespace pccl::peer {

struct TimeTotals {
  Duration all{0};           // since the start
  Duration waiting{0};       // for other members to call an operation
  Duration transferring{0};  // for the data of operations that all members have called
  Duration joint{0};         // in joint calls
  Duration saving{0};        // while the trainers copied the model or moved it
  Duration failing{0};       // in operations that ended with the loss of a member
  Duration elsewhere{0};     // in waits of other threads; no part of `all`
  std::map<PeerId, Duration> waiting_for;  // the parts of `waiting`, by the member that called last
  Duration computing() const { return all - waiting - transferring - joint - saving - failing; }
};

class TimeAccount {
 public:
  static constexpr size_t kOpenMax = 4096, kKnownMax = 256, kNamedMax = 1024;

  explicit TimeAccount(Instant start) : start_(start) {}

  // The application's thread has waited for this operation, which its Handle names.
  void waited(uint64_t operation, Instant from, Instant to);
  void waited_in_joint_call(Instant from, Instant to) { totals_.joint += to - from; }
  void waited_elsewhere(Instant from, Instant to) { totals_.elsewhere += to - from; }
  void saved(Duration time) { totals_.saving += time; }
  // The verdict on an operation has come: `last` has called it last, at `at`. If it has not called
  // it, `at` is the time of the verdict.
  void called(uint64_t operation, PeerId last, Instant at);
  // An operation has failed, and no verdict has come.
  void failed(uint64_t operation);

  TimeTotals totals(Instant now) const;

 private:
  struct Call {
    PeerId last;
    Instant at;
    bool failed = false;
  };
  struct Span {
    Instant from, to;
  };
  void count(const Call& call, const Span& wait);
  void known(uint64_t operation, const Call& call);

  Instant start_;
  TimeTotals totals_;
  std::map<uint64_t, Span> open_;   // the waits without a verdict: transfers meanwhile
  std::map<uint64_t, Call> known_;  // the verdicts without a wait
};

}  // namespace pccl::peer
