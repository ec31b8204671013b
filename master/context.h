// Context: what the parts of a MasterCore share during a step: the options, where effects go, and
// the numbers that are never given twice. No part reaches around it to another; core.cc and
// group.cc carry what one says to the next.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <variant>

#include "csrc/protocol/limits.h"
#include "master/core.h"

namespace pccl::master {

struct Context {
  Options options;
  protocol::LossPolicy policy = protocol::LossPolicy::kRaise;
  Duration peer_timeout = protocol::kPeerTimeoutDefault;  // of the run: as its first peer said
  Duration first_call_timeout = protocol::kPeerTimeoutDefault;  // likewise
  Effects* effects = nullptr;                                   // of the step under way,
  Instant now;                                                  // and its time
  // This process was stopped for long, not long ago: who closed its connection may have found us
  // silent.
  bool was_stopped = false;

  PeerId new_peer() { return {numbered(++peers)}; }
  Epoch new_epoch() { return {numbered(++epochs)}; }

  template <typename E>
  void emit(E effect) {
    effects->emplace_back(std::move(effect));
  }
  // Peers of the run have brought more together than there is room for: the run ends.
  void exceed(std::string what) {
    if (excess.empty()) excess = std::move(what);
  }
  void log(LogLevel level, std::string text) { emit(Log{level, std::move(text)}); }
  // Returns the token that Persisted will carry.
  uint64_t persist(Record record) {
    persisting[++tokens] = std::visit([](const auto& of) { return of.group; }, record);
    emit(Persist{tokens, std::move(record)});
    return tokens;
  }

  std::string excess;                      // since the last step
  size_t held_bytes = 0;                   // of messages that cannot be heard yet, of all groups
  std::map<uint64_t, GroupId> persisting;  // whose record each token under way is
  std::map<PeerId, GroupId> group_of;      // of who is in a group, or gone and remembered there
  uint32_t peers = 0;
  uint32_t epochs = 0;
  uint64_t tokens = 0;

 private:
  uint64_t numbered(uint32_t counter) const {
    return (uint64_t{options.incarnation} << 32) | counter;
  }
};

// A peer has sent what PROTOCOL.md forbids: its connection is closed.
inline Status violation(std::string text) { return {Code::kProtocol, std::move(text), {}}; }

}  // namespace pccl::master
