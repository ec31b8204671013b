// core_test: drives a core of `pccl probe` by hand, and writes its effects as lines of text.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "csrc/net/framing.h"
#include "csrc/probe/events.h"

namespace pccl::probe {

using net::FrameHeader;
using net::FrameType;

inline constexpr uint64_t kSession = 77, kMachine = 5;

inline std::string ids(const std::vector<Id>& all) {
  std::string out;
  for (const Id id : all) out += " " + std::to_string(id);
  return out;
}

inline std::string shown(const FrameHeader& header) {
  switch (header.type) {
    case FrameType::kHello: return header.round == 1 ? "hello, further" : "hello";
    case FrameType::kHelloOk: return header.round == 1 ? "hello ok, further" : "hello ok";
    case FrameType::kPing: return "ping";
    case FrameType::kPong: return "pong " + std::to_string(header.value);
    case FrameType::kTrial: return "trial of " + std::to_string(header.block);
    case FrameType::kTrialResult: return std::string("refusal: ") + text(refusal_in(header));
    default: return "frame";
  }
}

inline std::string milliseconds(Duration time) { return std::to_string(time.count() / 1'000'000); }

struct Shown {
  std::string operator()(const Dial& e) { return "dial " + std::to_string(e.id); }
  std::string operator()(const Send& e) {
    return "send " + std::to_string(e.id) + " " + shown(e.header);
  }
  std::string operator()(const SendAbout& e) { return "send about " + std::to_string(e.id); }
  std::string operator()(const Carry& e) {
    return "carry " + std::to_string(e.id) + (e.wan ? " wan" : "") + (e.local ? " local" : "") +
           (e.congestion.empty() ? "" : " " + e.congestion);
  }
  std::string operator()(const BeginCount& e) {
    return "count from " + milliseconds(e.from - Instant{}) + " to " +
           milliseconds(e.until - Instant{}) + ", send on" + ids(e.sending);
  }
  std::string operator()(const EndCount& e) {
    return "end count, tell " + std::to_string(e.tell) + ", lost " + std::to_string(e.lost);
  }
  std::string operator()(const Close& e) { return "close " + std::to_string(e.id); }
  std::string operator()(const Note& e) { return "note " + std::to_string(e.id) + ": " + e.text; }
  std::string operator()(const Ready& e) {
    return "ready, " + milliseconds(e.rtt) + " ms, " + e.about;
  }
  std::string operator()(const Measured& e) {
    return std::string("measured ") + name_of(e.trial.direction) + " of " +
           std::to_string(e.trial.streams) + ": " + std::to_string(e.theirs.bytes);
  }
  std::string operator()(const Over& e) {
    return "over " + std::to_string(static_cast<int>(e.ending)) + ": " + e.why;
  }
};

class CoreTest : public testing::Test {
 protected:
  virtual Core& core() = 0;

  std::string on(const Event& event) {
    Effects effects;
    core().step(event, now_, effects);
    std::string lines;
    for (const Effect& effect : effects) lines += std::visit(Shown{}, effect) + "\n";
    return lines;
  }
  std::string hear(Id id, const FrameHeader& header) { return on(FrameReceived{id, header}); }
  std::string hear(Id id, FrameType type) {
    FrameHeader header;
    header.type = type;
    return hear(id, header);
  }
  std::string hear_hello(Id id, FrameType type, bool further, uint64_t session = kSession) {
    return hear(
        id, net::hello_frame(type, {.run_id = session, .machine = kMachine, .further = further}));
  }
  // The effects of all TimePassed in this time.
  std::string wait(Duration time) {
    const Instant end = now_ + time;
    std::string lines;
    for (auto at = core().deadline(); at && *at <= end; at = core().deadline()) {
      now_ = std::max(now_, *at);
      lines += on(TimePassed{});
    }
    now_ = end;
    return lines;
  }

  Instant now_;
};

}  // namespace pccl::probe
