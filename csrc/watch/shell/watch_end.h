// WatchEnd: an observer of a master. It carries out the effects of its core: it connects, proves
// its token, sends and receives. It belongs to the loop that created it; call it on that loop only.
// Normal case: the constructor begins to connect; each answer is shown; the core ends it with Over.
// Failure: a fault ends the connection, and the core gets an event.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "csrc/base/token.h"
#include "csrc/net/socket.h"
#include "csrc/net/stream.h"
#include "csrc/protocol/codec.h"
#include "csrc/watch/watch_core.h"

namespace pccl::watch {

class WatchEnd {
 public:
  struct Options {
    Endpoint master;
    std::optional<Token> token;
    bool insecure = false;  // plain text to another machine is allowed
  };
  struct Callbacks {
    std::function<void(const std::string& snapshot)> on_snapshot;
    std::function<void(const Over&)> on_over;  // once; may not destroy this object
  };
  WatchEnd(net::Loop& loop, Plan plan, Options options, Callbacks callbacks);
  ~WatchEnd();

 private:
  void connected(Result<net::Socket> socket);
  void received(std::span<const std::byte> bytes);
  void step(const Event& event);
  void apply(const Send& effect);
  void apply(const Show& effect) { callbacks_.on_snapshot(effect.snapshot); }
  void apply(const Over& effect);

  net::Loop& loop_;
  const Options options_;
  const Callbacks callbacks_;
  WatchCore core_;
  protocol::Decoder decoder_;
  net::Timer timer_;
  std::unique_ptr<net::Connector> connector_;
  std::unique_ptr<net::Stream> stream_;
  bool over_ = false;
};

}  // namespace pccl::watch
