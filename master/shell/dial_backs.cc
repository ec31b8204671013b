#include "master/shell/dial_backs.h"

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/little_endian.h"
#include "csrc/base/random.h"

namespace pccl::master {
DialBacks::DialBacks(net::Loop& loop, Answer answer) : loop_(loop), answer_(std::move(answer)) {}

std::optional<protocol::Reject> DialBacks::add(ConnectionId id, const std::string& host,
                                               uint16_t port) {
  loop_.assert_on_loop();
  PCCL_ASSERT(!all_.contains(id));
  if (all_.size() >= kAtOnceMax || !rate_.take(host, monotonic_now())) {
    return protocol::Reject{Code::kInvalidState,
                            "this master checks too many machines at present: ask again in some "
                            "seconds"};
  }
  if (port == 0) {
    answer(id, host, {});
    return std::nullopt;
  }
  all_[id] = std::make_unique<net::Connector>(
      loop_, net::Endpoint{host, port}, kTimeout,
      [this, id, host](const Result<net::Socket>& socket) { connected(id, host, socket); });
  return std::nullopt;
}

// A new connection takes these few bytes at once. If it does not, the proof does not arrive.
void DialBacks::connected(ConnectionId id, const std::string& host,
                          const Result<net::Socket>& socket) {
  protocol::DialedBack result;
  result.connected = socket.ok();
  if (socket.ok()) {
    result.proof = random_number();
    std::array<std::byte, sizeof result.proof> bytes{};
    store_little_endian(bytes.data(), result.proof);
    [[maybe_unused]] const ssize_t sent =
        ::send(socket.value().fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } else {
    result.fault = all_.at(id)->fault();
  }
  answer(id, host, std::move(result));
}

void DialBacks::answer(ConnectionId id, const std::string& host, protocol::DialedBack result) {
  result.host = host;
  result.unix_ms = static_cast<uint64_t>(unix_now().count());
  answer_(id, result);
}

}  // namespace pccl::master
