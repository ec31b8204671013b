// Context: what the parts of a PeerCore share during a step: the options, what time it is, where
// effects go, and whether the master can be spoken to. No part knows another; core.cc carries what
// one says to the next.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/peer/core.h"

namespace pccl::peer {

struct Context {
  Options options;
  Instant now;
  Effects* effects = nullptr;  // of the step under way
  bool linked = false;         // Hello or Resume has been sent on the connection there is
  bool has_sent = false;       // anything since the last tick
  protocol::Standing standing = protocol::Standing::kNone;  // of this peer; never falls

  void took_part(protocol::Standing in) { standing = std::max(standing, in); }

  template <typename E>
  void emit(E effect) {
    effects->push_back(std::move(effect));
  }
  // To the master. While there is no connection nothing is kept: Resume tells the state of things.
  void tell(protocol::Message message) {
    if (!linked) return;
    has_sent = true;
    emit(SendMaster{std::move(message)});
  }
  // A time so long that it may stand for "for ever" must not overflow.
  Instant after(Duration duration) const { return now + std::min(duration, kForever); }
  static constexpr Duration kForever = std::chrono::hours(24 * 3650);
  void note(LogLevel level, std::string text) { emit(Log{level, std::move(text)}); }
};

// The master has sent what PROTOCOL.md forbids.
inline Status violation(std::string text) { return {Code::kProtocol, std::move(text), {}}; }

using pccl::text;  // of durations; those of this namespace would hide it

}  // namespace pccl::peer
