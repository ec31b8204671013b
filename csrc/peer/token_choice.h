// TokenChoice decides which token a peer shows to its master, when the file of the token changes
// while the peer is in a run. It belongs to the PeerCore. The shell reads the tokens and numbers
// them in the order of their reading; here they are numbers only.
//
// The proven token is the token of the last connection that the master answered. A token that was
// read later is new: the peer connects again to show it. If the master refuses the new token, the
// peer returns to the proven one, so that a wrong file costs no membership. It tries the new one
// again later, because the master may read its keyring after the peer has read its file.
// Invariants:
//   1. The proven token and the shown token are not newer than the newest token.
//   2. The pause before the next trial is between 2 seconds and 1 minute, and the time of this
//      trial is at most one pause in the future.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "csrc/peer/context.h"

namespace pccl::peer {

class TokenChoice {
 public:
  // A master reads its keyring within about a second after a change.
  static constexpr Duration kPauseMin = std::chrono::seconds(2);
  static constexpr Duration kPauseMax = std::chrono::minutes(1);

  explicit TokenChoice(Context& context) : context_(context) {}

  // A new token was read. It is shown at once. REQUIRES: `number` is higher than all before.
  void read(uint32_t number);
  // Returns the token that a new connection shows.
  uint32_t choose();
  void proven();  // the master has answered the connection
  // The master has refused the token of the connection. Returns whether the next connection shows a
  // different token.
  bool refused(const std::string& why);
  // Whether the present connection should end, so that the next one shows the newest token.
  bool due() const;
  std::optional<Instant> deadline() const;  // the time from which due() is true

  void check() const;  // asserts the invariants

 private:
  Context& context_;
  uint32_t newest_ = 1, shown_ = 1;
  uint32_t proven_ = 0;   // 0: none yet
  bool refused_ = false;  // the master has refused the newest token
  Instant retry_at_;
  Duration pause_ = kPauseMin;
};

}  // namespace pccl::peer
