// History: the last events of a run and its last refusals, for the diagnosis of the run
// (diagnosis/diagnosis.h). Context owns one, and every line of the run's log is an event of it. It
// is a plain record: no decision of the master depends on it.
// Invariants:
// 1. It has at most kEventsMax events and kRefusalsMax refusals, each with at most kTextBytesMax
//    bytes of text, in the order of their times.
// 2. No two events have the same text: a repeated one takes the place of the earlier one.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/ids.h"
#include "csrc/base/log.h"

namespace pccl::master {

class History {
 public:
  static constexpr size_t kEventsMax = 5;
  static constexpr size_t kRefusalsMax = 4;

  struct Event {
    Instant at;
    LogLevel level = LogLevel::kInfo;
    std::string text;
  };
  enum class Cause : uint8_t {
    kVersion,      // the peer speaks another version of the protocol
    kTerms,        // its settings, or its name, do not fit the run
    kOtherLaunch,  // it belongs to another launch than the peers of the run
    kState,        // a sync_shared_state of all members
  };
  struct Refusal {
    Instant at;
    Cause cause = Cause::kTerms;
    GroupId group;
    std::string whom;  // the refused peer by its name, or its address if it has none
    std::string text;  // a whole sentence
  };

  void note(Instant at, LogLevel level, const std::string& text);
  void refused(Refusal refusal);
  // A sync_shared_state of this group has succeeded: its refusals are no longer of interest.
  void agreed(GroupId group);

  const std::deque<Event>& events() const { return events_; }        // the oldest first
  const std::deque<Refusal>& refusals() const { return refusals_; }  // likewise
  // Asserts the invariants.
  void check() const;

 private:
  std::deque<Event> events_;
  std::deque<Refusal> refusals_;
};

const char* level_text(LogLevel level);

}  // namespace pccl::master
