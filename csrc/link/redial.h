// Redial: the attempts to reach one peer that is dialled, and the pause before they are repeated. A
// pass tries all addresses of the peer in order; after a pause the next pass begins. LinkCore owns
// one for each peer that it dials, carries out the attempts, and decides which peer may try further
// addresses. It is pure.
//
// The likeliest address is tried first and alone: the one that worked before, otherwise the first
// that the master names. The other addresses are tried if the first one fails, or if it is private
// and does not answer quickly. If an address that worked before accepts a connection and closes it,
// the pass ends at once, at most four times until the link is up: the peer checks its old link, and
// the other addresses would only cost time.
// Invariants:
//   1. At most two attempts are under way, and besides them one at an address that worked before.
//   2. A pass tries each address at most once. All of them together take no longer than a single
//      one.
//   3. During a pause no attempt is under way, and the pass has no address left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/endpoint.h"
#include "csrc/base/link_fault.h"
#include "csrc/link/events.h"
#include "csrc/protocol/keepalive_timer.h"
#include "csrc/protocol/limits.h"

namespace pccl::link {

class Redial {
 public:
  // Longest pause before an unreachable peer is tried again; it is one tick if that is shorter.
  static constexpr Duration kPauseMax = std::chrono::seconds(1);
  // At most this number of attempts to reach one peer are under way at a time. An attempt at an
  // address that worked before does not count.
  static constexpr size_t kAttemptsMax = 2;
  // At most this number of passes end early because an address that worked before closes the
  // connection. The other end closes new connections while it checks whether its link to us is
  // alive. That check takes kLooks ticks at most.
  static constexpr int kClosedPassesMax = protocol::LivenessCheck::kLooks + 1;

  // The time that a connection to a single address may take.
  static Duration connect_timeout(Duration peer_timeout) {
    return std::min(peer_timeout / 2, protocol::kConnectTimeoutMax);
  }

  explicit Redial(Duration peer_timeout) : peer_timeout_(peer_timeout) {}

  struct Attempt {
    ConnectionId id;
    Endpoint at;
  };
  const std::vector<Attempt>& attempts() const { return attempts_; }     // under way
  const std::vector<Endpoint>& addresses() const { return addresses_; }  // as the master gave them
  bool pauses() const { return next_pass_.has_value(); }
  // Whether the pass has an address that was not tried yet.
  bool has_more() const { return begun_ < order_.size(); }
  // Whether the next address may be tried now. REQUIRES: has_more().
  bool may_attempt(Instant now) const;
  // When the next pass begins; or when other addresses are tried, too, although the first one has
  // not failed.
  std::optional<Instant> deadline() const;
  // The errors of this pass, and the one of the address that the master named first.
  const std::string& why() const { return why_; }
  LinkFault fault() const { return fault_; }

  // `reached`: where the peer was reached last, if it was. REQUIRES: no attempt is under way.
  void begin_pass(std::vector<Endpoint> addresses, const std::optional<Endpoint>& reached,
                  Instant now);
  // Ends the pass for this reason. REQUIRES: no attempt is under way.
  void give_up(const std::string& why, LinkFault fault);
  // Begins the next attempt, and returns the time that it may take. REQUIRES: has_more().
  Duration attempt(ConnectionId id);
  // `connected`: the address had accepted the connection. REQUIRES: the attempt is under way.
  void failed(ConnectionId id, const std::string& why, LinkFault fault, bool connected);
  // This connection is no attempt any more, if it was one.
  void drop(ConnectionId id);
  // REQUIRES: no attempt is under way, and not has_more().
  void pause(Instant now);

  void check() const;  // asserts the invariants

 private:
  Duration connect_timeout() const { return connect_timeout(peer_timeout_); }
  bool tries_known() const;

  Duration peer_timeout_;
  std::vector<Endpoint> addresses_;
  std::vector<Endpoint> order_;  // the same addresses in the order of this pass
  bool knows_first_ = false;     // the first address of this pass has worked before
  size_t begun_ = 0;             // number of addresses tried in this pass
  std::vector<Attempt> attempts_;
  std::string why_;
  LinkFault fault_ = LinkFault::kOther;
  Instant more_at_;  // when the others are tried, too, even without a failure
  std::optional<Instant> next_pass_;
  int closed_passes_ = 0;  // passes that count for kClosedPassesMax
};

}  // namespace pccl::link
