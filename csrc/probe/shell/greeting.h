// Greeting: one connection to a master that ends with the first answer, and joins no run. It is for
// `pccl doctor`. It sends a Hello that names no run. Every master refuses such a Hello, and changes
// nothing. The refusal shows that the address and the port are right, that both sides have a
// version of the protocol in common, and in a secured run that the token is right: its proof comes
// before the Hello. It belongs to one loop; call it on that loop only.
// Or it sends a DialBack, and the answer shows whether the master can connect to this machine, and
// the time of the master.
//
// The normal course: connect; with a token, TLS; the Hello, with padding if large packets are to be
// tested, or the DialBack; the Reject or the DialedBack of the master.
// Failure: each fault is an Ending, and ends the greeting. It never tries again. A greeting takes
// at most twice Options::at_most: once for the connection, once for the answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/net/keys.h"
#include "csrc/net/socket.h"
#include "csrc/protocol/messages.h"

namespace pccl::probe {

class Greeting {
 public:
  static constexpr uint32_t kPaddingMax = 65536;

  struct Options {
    // The id of a token, and the key of a connection to a master (control_key). None: plain text.
    std::optional<std::pair<std::string, net::Key>> token;
    // The number of bytes after the last field of the Hello, which every receiver ignores.
    // REQUIRES: at most kPaddingMax.
    uint32_t padding = 0;
    // The port of this machine that the master is asked to connect to; 0: it is asked for its clock
    // only. None: a Hello is sent.
    std::optional<uint16_t> dial_back = {};
    Duration at_most{0};
  };
  enum class Ending {
    kAnswered,      // the master has sent a Reject, or a DialedBack
    kRefused,       // nobody listens on the port
    kNoAnswer,      // no connection in time, or no route
    kNoConnection,  // the system refuses to connect for another reason
    kSilent,        // connected, and no answer has arrived in time
    kClosed,        // connected, and then closed without an answer
    kUnknownToken,  // the master does not know the id of the token
    kWrongSecret,   // the master has another secret for the token
    kPlainText,     // the other side speaks plain text: it did not get the token
    kUnproven,      // the other side has not proven that it knows the token
    kNoMaster,      // the other side is no master
  };
  struct Outcome {
    Ending ending = Ending::kNoMaster;
    protocol::Reject reject = {};  // of kAnswered, without `dialed`
    std::string why = {};          // of all others
    std::optional<protocol::DialedBack> dialed = {};
    Duration ahead{0};  // of `dialed`: the clock of the master minus that of this machine
    Duration rtt{0};    // smoothed RTT of the connection; 0: not known
    // The number of sent bytes that the other side has not acknowledged at the end. If a silent
    // connection has some, packets are lost.
    uint64_t unacknowledged = 0;
  };
  using Callback = std::function<void(const Outcome&)>;

  // `callback` is called once. It must not destroy the greeting.
  Greeting(net::Loop& loop, const Endpoint& master, Options options, Callback callback);
  ~Greeting();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::probe
