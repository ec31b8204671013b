// WaitReport: decides which waits of a group are announced: calls that some members have made and
// others have not. A wait of more than `limit` is announced once to each member that waits, and its
// end to the same members. Group owns one. It is pure: time comes in through look().
// Invariants:
//   1. No member gets two announcements of the same wait.
//   2. Only members that got the announcement of a wait get the announcement of its end.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/ids.h"
#include "csrc/protocol/messages.h"

namespace pccl::master {

// `what` and `since` identify the wait. `why` begins with "for", and describes the missing members.
struct Wait {
  std::string what;  // "all_reduce(...) (#7) in epoch 1.5", "update_topology"
  Instant since;
  std::vector<PeerId> waiting;
  std::string why;
  // The call. end() finds the wait by it.
  using Call = std::variant<OpKey, protocol::JointKind>;
  Call call;
};

// "all_reduce(...) (#7) in epoch 1.5 has waited for 10 s for rank 2 (c), which ...".
std::string wait_text(const Wait& wait, Instant now);

class WaitReport {
 public:
  struct Announcement {
    std::vector<PeerId> to;
    std::string text;
    bool is_first = true;  // if so, the log of the master gets it, too
    bool is_end = false;   // the wait is over
  };

  // `waits`: the present waits. Calls that were made together end one after the other. So after the
  // end of an announced wait, the limit begins anew for the waits that were not announced.
  std::vector<Announcement> look(const std::vector<Wait>& waits, Duration limit, Instant now);
  // This call has an outcome. Its members may leave now, so the end of their wait is announced at
  // once.
  std::vector<Announcement> end(const Wait::Call& call, Instant now);
  // Some member was told of this wait.
  bool has_announced(const Wait& wait) const { return told_.contains({wait.since, wait.what}); }

 private:
  using Key = std::pair<Instant, std::string>;
  struct Told {
    Wait::Call call;
    std::set<PeerId> peers;  // got the announcement
  };
  using Waits = std::map<Key, Told>;
  Announcement end(Waits::iterator at, Instant now);

  Waits told_;     // the announced waits
  Instant ended_;  // when an announced wait ended last
};

}  // namespace pccl::master
