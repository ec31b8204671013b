// Context: the state that the parts of a MasterCore share during a step: the options, the list of
// effects, and the counters for numbers that are never reused. The MasterCore owns it. A part does
// not reach another part through it: core.cc and group.cc carry the results of one part to another.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <variant>

#include "csrc/base/assert.h"
#include "csrc/net/keys.h"
#include "csrc/protocol/limits.h"
#include "master/events.h"
#include "master/history.h"

namespace pccl::master {

struct Context {
  Options options;
  protocol::RunSettings settings;  // the settings of the run, once it has a peer
  Effects* effects = nullptr;      // the effects of the current step
  Instant now;                     // time of the current step
  // True for a while after a long pause of this process. During the pause the peers received
  // nothing from this master, and may have closed their connections for that reason.
  bool was_paused = false;
  bool ends = false;  // the process of the master will end: no epoch begins any more

  // The key of `peer` for accepting links; none if the run is not secured.
  std::optional<protocol::Key> accepting(PeerId peer) const {
    if (!options.seed) return std::nullopt;
    return net::accepting_key(*options.seed, peer);
  }
  // The credential with which `dialler` can dial `acceptor`, and no other peer; none if the run is
  // not secured. Each credential has a number of its own.
  std::optional<protocol::LaneCredential> credential(PeerId dialler, PeerId acceptor) {
    if (!options.seed) return std::nullopt;
    const protocol::LaneIdentity identity{dialler, acceptor, options.incarnation, ++credentials};
    return protocol::LaneCredential{identity,
                                    net::lane_key(*accepting(acceptor), options.run_id, identity)};
  }

  PeerId new_peer() { return {numbered(++peers)}; }
  Epoch new_epoch() { return {numbered(++epochs)}; }

  template <typename E>
  void emit(E effect) {
    PCCL_ASSERT(effects != nullptr);  // outside of a step no effect is carried out
    effects->emplace_back(std::move(effect));
  }
  // The peers of the run need more than a limit of the master allows: the run ends. `what`: the
  // limit that was exceeded.
  void exceed(std::string what) {
    PCCL_ASSERT(!what.empty());
    if (excess.empty()) excess = std::move(what);
  }
  void log(LogLevel level, About about, std::string text) {
    history.note(now, level, text);
    emit(Log{level, std::move(about), std::move(text)});
  }
  // The same for a text that is not for strangers. Everybody can observe a run without tokens, so
  // there the history has `shown` in its place. Empty: nothing.
  void log_withheld(LogLevel level, About about, std::string text, const std::string& shown) {
    const std::string& noted = options.seed ? text : shown;
    if (!noted.empty()) history.note(now, level, noted);
    emit(Log{level, std::move(about), std::move(text)});
  }
  // The same for a line that comes often, and so is not in the history: the level is debug.
  void log_often(About about, std::string text) {
    emit(Log{LogLevel::kDebug, std::move(about), std::move(text)});
  }
  // Returns the token that Persisted will carry.
  uint64_t persist(Record record) {
    ++tokens;
    PCCL_ASSERT(persisting.empty() || persisting.rbegin()->first < tokens);
    persisting[tokens] = std::visit([](const auto& of) { return of.group; }, record);
    emit(Persist{tokens, std::move(record)});
    return tokens;
  }

  History history;        // of the run
  std::string excess;     // the limit that was exceeded since the last step
  size_t held_bytes = 0;  // bytes of messages held in all groups until they can be processed
  std::map<uint64_t, GroupId> persisting;  // group of each record that is being persisted, by token
  // group of each peer that has one, and of each gone peer that its group remembers
  std::map<PeerId, GroupId> group_of;
  uint32_t peers = 0;
  uint32_t epochs = 0;
  uint64_t tokens = 0;
  uint64_t credentials = 0;

 private:
  uint64_t numbered(uint32_t counter) const {
    PCCL_ASSERT(options.incarnation != 0);  // with 0, an id could mean "none"
    return (uint64_t{options.incarnation} << 32) | counter;
  }
};

}  // namespace pccl::master
