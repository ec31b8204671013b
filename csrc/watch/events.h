// The events that WatchCore takes and the effects that it asks for, all plain data. The shell
// (shell/watch_end.h) carries out the effects in the order of step().
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/protocol/messages.h"

namespace pccl::watch {

// ---- Events ----
struct Connected {};  // and the token is proven, if there is one
struct Received {
  protocol::Message message;
};
struct Failed {  // the connection has ended, or could not be made
  Status why;
};
struct TimePassed {};  // due at deadline()
using Event = std::variant<Connected, Received, Failed, TimePassed>;

// ---- Effects ----
struct Send {
  protocol::Message message;
};
struct Show {  // a whole answer: one JSON object
  std::string snapshot;
};
enum class Ending : uint8_t {
  kDone,
  kNoMaster,  // no connection
  kToken,     // an end has not proven its token
  kRefused,   // by the master; `why` is its text
  kLost,      // something broke later
};
struct Over {  // nothing follows
  Ending ending = Ending::kDone;
  std::string why;
};
using Effect = std::variant<Send, Show, Over>;
using Effects = std::vector<Effect>;

}  // namespace pccl::watch
