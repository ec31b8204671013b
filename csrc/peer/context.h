// Context: the state that the parts of a PeerCore share during a step: the options, the time, the
// list of effects, and whether messages can be sent to the master. It belongs to the PeerCore. A
// part may read Membership, but no part acts on another: core.cc carries the results of one part to
// the next.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/peer/events.h"

namespace pccl::peer {

struct Context {
  Options options;
  // The settings of the run. Before Welcome, they are the given ones and defaults.
  protocol::RunSettings settings;
  Instant now;
  Effects* effects = nullptr;  // of the current step
  bool linked = false;         // Hello or Resume has been sent on this connection
  bool has_sent = false;       // a message was sent since the last beat
  protocol::Standing standing = protocol::Standing::kNone;  // of this peer; never decreases

  void took_part(protocol::Standing in) { standing = std::max(standing, in); }

  template <typename E>
  void emit(E effect) {
    PCCL_DCHECK(effects != nullptr);  // only within a step
    effects->push_back(std::move(effect));
  }
  // Sends a message to the master. Without a connection the message is dropped: Resume will
  // describe the state.
  void send(protocol::Message message) {
    if (!linked) return;
    has_sent = true;
    emit(SendMaster{std::move(message)});
  }
  Instant after(Duration duration) const { return now + std::min(duration, kForever); }
  void note(LogLevel level, LogEvent event, std::string text) {
    emit(Log{level, event, std::move(text)});
  }
  std::string master() const { return "master at " + options.master_text; }
};

using pccl::text;  // text() of durations; the text() functions of this namespace would hide it

}  // namespace pccl::peer
