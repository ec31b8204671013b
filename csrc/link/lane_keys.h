// LaneKeys: decides whose links this peer accepts in a secured run. A dialler shows an identity and
// proves that it has the key that is derived for this identity (net/keys.h). LaneKeys finds that
// key, or refuses the identity. LinkCore owns one. It is pure.
// Invariants:
//   1. This peer keeps the accepting keys of at most the last two incarnations of the master, the
//      older key first. So a peer that has its credential from before a restart can still connect.
//   2. A peer that was forgotten is refused with every credential of the incarnation at that time
//      and of earlier ones.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "csrc/protocol/messages.h"

namespace pccl::link {

using protocol::AcceptingKey;

class LaneKeys {
 public:
  // Adds a key. A key of the last known incarnation, or of an earlier one, is ignored.
  void accept_with(const AcceptingKey& key);
  // Whether links need a key at all.
  bool required() const { return !keys_.empty(); }
  // The master has declared this peer gone. Its id is never used for a different peer.
  void forget(PeerId peer);
  // Returns the key of the dialler with this identity; nullopt if the identity is refused. `self`:
  // this peer.
  std::optional<protocol::Key> find(const protocol::LaneIdentity& identity, PeerId self,
                                    uint64_t run_id) const;
  void check() const;  // asserts the invariants

 private:
  std::deque<AcceptingKey> keys_;
  std::map<PeerId, uint32_t> gone_;  // with the incarnation at the last forget()
  std::deque<PeerId> order_;         // of gone_, oldest first
};

}  // namespace pccl::link
