// The events that a core of `pccl probe` takes and the effects that it asks for, all plain data,
// and the interface of both cores, ServerCore and ClientCore. The shell (shell/probe_end.h) carries
// out the effects in the order that step() appends them. If an effect causes an event, the core
// gets that event after all effects of the step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/link_fault.h"
#include "csrc/base/status.h"
#include "csrc/probe/trial.h"
#include "csrc/protocol/frames.h"

namespace pccl::probe {

using Id = uint64_t;  // id of a connection; 0: none

// ---- Events ----
struct Started {};  // the first event of a client
struct Opened {     // of a client: a Dial has succeeded, and the other end has proven its key
  Id id = 0;
};
struct FrameReceived {
  Id id = 0;
  protocol::FrameHeader header;
};
struct AboutReceived {  // of a client: the server's text about its host
  Id id = 0;
  std::string text;
};
// The connection has ended, or could not be made. `reached`: the connection had been made.
struct Failed {
  Id id = 0;
  Status why = {};
  bool reached = true;
  LinkFault fault = LinkFault::kOther;
};
struct TuneRefused {  // the system refuses the congestion control of a Carry
  Id id = 0;
};
struct TimePassed {};  // due at deadline()
using Event =
    std::variant<Started, Opened, FrameReceived, AboutReceived, Failed, TuneRefused, TimePassed>;

// ---- Effects ----
struct Dial {  // connects to the server
  Id id = 0;
};
struct Send {
  Id id = 0;
  protocol::FrameHeader header;
};
struct SendAbout {
  Id id = 0;
};
// From now on this connection carries data. It is tuned like a lane. `local`: both ends are on one
// machine.
struct Carry {
  Id id = 0;
  bool wan = false;
  std::string congestion;
  bool local = false;
};
// Sends data on these connections until the count ends. Counts the bytes that arrive on any
// connection within the time.
struct BeginCount {
  std::vector<Id> sending;
  bool wan = false;
  Instant from, until;
};
struct EndCount {  // the result is sent on the connection `tell`; 0: it is not sent
  Id tell = 0;
  uint32_t lost = 0;
};
struct Close {
  Id id = 0;
};
struct Note {  // a line for people, about the other end
  Id id = 0;
  std::string text;
};
struct Ready {  // of a client: the first trial follows
  Duration rtt{0};
  std::string about;
};
struct Measured {  // of a client: ends the count, and reports it
  Trial trial;
  TrialResult theirs;
};
// The reason why a client ended.
enum class Ending : uint8_t {
  kDone,
  kRefused,    // no program listens
  kNoAnswer,   // no answer in time
  kNoConnect,  // another failure
  kNoProbe,    // another program listens
  kBusy,
  kToken,  // one of the two ends has not proven its key
  kLost,   // something broke later
};
struct Over {  // of a client: nothing follows
  Ending ending = Ending::kDone;
  std::string why;
};
using Effect = std::variant<Dial, Send, SendAbout, Carry, BeginCount, EndCount, Close, Note, Ready,
                            Measured, Over>;
using Effects = std::vector<Effect>;

class Core {
 public:
  virtual ~Core() = default;
  virtual void step(const Event& event, Instant now, Effects& effects) = 0;
  virtual std::optional<Instant> deadline() const = 0;  // when TimePassed is due
};

// Maximum wait for an answer: a frame may wait in a queue behind seconds of data.
inline constexpr Duration kAnswerTimeout = std::chrono::seconds(15);

}  // namespace pccl::probe
