// LinkCoreTest: a LinkCore that is fed events and whose effects are read as lines of text.
// Connections are named by letters, in the order in which they are made.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "csrc/link/core.h"

namespace pccl::link {

using protocol::LaneHello;
using protocol::LinkState;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Lines = std::vector<std::string>;

inline constexpr PeerId kSelf{5}, kLow{3}, kHigh{8};
inline constexpr uint64_t kRun = 99, kMachine = 7;
inline constexpr uint16_t kVersion = 9;
inline const Endpoint kAt{"10.0.0.3", 48201};

class LinkCoreTest : public testing::Test {
 protected:
  explicit LinkCoreTest(const std::optional<AcceptingKey>& accepting = {}) {
    core.set_identity({kSelf, kRun, kMachine, kVersion, accepting});
  }

  Lines step(const Event& event) {
    Effects effects;
    core.step(event, now, effects);
    core.check();
    Lines lines;
    for (const Effect& effect : effects) lines.push_back(line(effect));
    return lines;
  }
  Lines pass(Duration time) {
    now = now + time;
    return step(TimePassed{});
  }
  Lines tick(const std::string& received = "") {
    Tick tick;
    for (const char letter : received) tick.received.push_back(named(letter));
    return step(tick);
  }
  Lines dial(PeerId peer, uint32_t dead_serial = 0) { return step(Dial{peer, {kAt}, dead_serial}); }
  // A peer connects to us. The core gets the connection when we hear from it.
  ConnectionId accept(const std::optional<protocol::LaneIntroduction>& proven = {}) {
    const ConnectionId id = core.new_lane();
    accepted[id] = proven;
    return id;
  }
  Lines hear(ConnectionId id, const std::optional<LaneHello>& hello, Duration rtt) {
    const HelloReceived first{id, hello, rtt};
    const auto pending = accepted.extract(id);
    return pending ? step(Accepted{first, "10.0.0.9:5", pending.mapped()}) : step(first);
  }
  Lines hear(char letter, const LaneHello& hello) {
    return hear(named(letter), hello, milliseconds(20));
  }
  // A hello as the other side sends it.
  static LaneHello hello(PeerId from, uint32_t serial = 1, bool further = false) {
    return {.run_id = kRun,
            .self = from,
            .other = kSelf,
            .versions = {8, 10},
            .serial = serial,
            .further = further};
  }
  // Sets up a link that we dialled, on connection 'a'.
  void link(PeerId peer) {
    dial(peer);
    step(Connected{named('a')});
    ASSERT_EQ(hear('a', hello(peer)).size(), 2u);
  }
  static ConnectionId named(char letter) { return {static_cast<uint64_t>(letter - 'a' + 1)}; }
  static std::string letter(ConnectionId id) {
    return std::string(1, static_cast<char>('a' + id.value - 1));
  }

  static std::string line(const Effect& effect) {
    if (const auto* e = std::get_if<Connect>(&effect))
      return "connect " + letter(e->lane) + " to " + text(e->to) + " in " +
             std::to_string(e->timeout / milliseconds(1)) + " ms" +
             (e->segment > 0 ? " segment " + std::to_string(e->segment) : "");
    if (const auto* e = std::get_if<LimitAccepted>(&effect))
      return "limit accepted " + std::to_string(e->segment);
    if (const auto* e = std::get_if<SmallerHelped>(&effect))
      return "helped " + letter(e->lane) + " " + std::to_string(e->segment);
    if (const auto* e = std::get_if<NarrowPathGone>(&effect))
      return "narrow path gone " + text(e->peer);
    if (const auto* e = std::get_if<SendHello>(&effect)) {
      return std::string(e->answer ? "answer " : "hello ") + letter(e->lane) + " serial " +
             std::to_string(e->hello.serial) + (e->hello.further ? " further" : "");
    }
    if (const auto* e = std::get_if<SendPing>(&effect))
      return "ping " + letter(e->lane) + " " + std::to_string(e->number);
    if (const auto* e = std::get_if<Close>(&effect)) return "close " + letter(e->lane);
    if (const auto* e = std::get_if<LaneUp>(&effect)) {
      return "up " + letter(e->lane) + (e->further ? " further" : "") +
             (e->same_machine ? " local" : "") + (e->wan ? " far" : "");
    }
    if (const auto* e = std::get_if<LinkDown>(&effect)) return "down " + text(e->peer);
    const auto& what = std::get<ReportLink>(effect).what;
    const char* state = what.state == LinkState::kUp     ? "up"
                        : what.state == LinkState::kDown ? "down"
                                                         : "unreachable";
    return std::string("report ") + state + " " + std::to_string(what.serial) +
           (what.text.empty() ? "" : ": " + what.text);
  }

  LinkCore core{{.lanes_max = 4}};
  Instant now{seconds(100)};
  std::map<ConnectionId, std::optional<protocol::LaneIntroduction>> accepted;
};

}  // namespace pccl::link
