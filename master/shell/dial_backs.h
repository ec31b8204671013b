// DialBacks: connects to machines that want to know whether others can reach them (`pccl doctor
// URL`), and answers with the result and the time (PROTOCOL.md, section 10). The Shell owns it, on
// its loop, and has the connections. In a secured run, only the holder of a token can ask.
// A stranger must not use the master to explore other machines. So it connects only to the address
// from which the question comes, only kPerSecond times a second for each network, and sends only a
// random number. The answer has the kind of a failure, and no words of the system.
// Normal case: add() begins to connect; the result is sent, and the connection of the question is
// closed. A question has one answer.
// Failure: a question beyond the limits is refused. An attempt takes at most kTimeout.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "csrc/net/network_buckets.h"
#include "csrc/net/socket.h"
#include "csrc/protocol/messages.h"
#include "master/events.h"

namespace pccl::master {

class DialBacks {
 public:
  static constexpr size_t kAtOnceMax = 8;  // each takes a descriptor
  static constexpr int kPerSecond = 1;     // for each network; and kBurst at once
  static constexpr int kBurst = 8;
  static constexpr Duration kTimeout = std::chrono::seconds(3);

  // Sends the answer, and closes the connection. It calls forget().
  using Answer = std::function<void(ConnectionId, const protocol::DialedBack&)>;
  DialBacks(net::Loop& loop, Answer answer);

  // A question of the machine with the numeric address `host`. Returns the reason if it is refused.
  // The answer may come before add() returns. REQUIRES: the connection has not asked yet.
  std::optional<protocol::Reject> add(ConnectionId id, const std::string& host, uint16_t port);
  void forget(ConnectionId id) { all_.erase(id); }  // its connection is closing
  bool contains(ConnectionId id) const { return all_.contains(id); }

 private:
  void connected(ConnectionId id, const std::string& host, const Result<net::Socket>& socket);
  void answer(ConnectionId id, const std::string& host, protocol::DialedBack result);

  net::Loop& loop_;
  const Answer answer_;
  net::NetworkBuckets rate_{kPerSecond, kBurst};
  std::map<ConnectionId, std::unique_ptr<net::Connector>> all_;
};

}  // namespace pccl::master
