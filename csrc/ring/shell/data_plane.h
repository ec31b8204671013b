// DataPlane: the data plane of a peer: one Engine, and a LinkDriver that brings it lanes.
// Control owns it (csrc/peer/shell/control.h) and calls it directly: both belong to the peer loop.
// Its events come from inside its methods and from the loop, so Control keeps them in its inbox
// until the present step is over.
// After the destructor returns, nothing touches a lent tensor.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/link/shell/link_driver.h"
#include "csrc/ring/engine.h"

namespace pccl::ring {

class DataPlane {
 public:
  struct Callbacks {
    std::function<void(DataEvent)> on_event;
    std::function<void(const std::string&)> on_warning;  // for the log
  };
  // `loop` belongs to the owner, which ends the loop after this object.
  DataPlane(link::DriverOptions options, const Callbacks& callbacks, net::LoopShare& loop,
            std::shared_ptr<memory::Pool> pool);

  link::LinkDriver& links();
  Engine& engine();
  // `neighbours`: the members of `peers` next to this peer in the ring.
  void begin_epoch(Epoch epoch, std::vector<PeerId> peers, std::vector<PeerId> neighbours);
  LinkSample sample(PeerId peer) const;
  DataCounters counters() const;

 private:
  net::LoopShare& loop_;
  Engine engine_;
  link::LinkDriver links_;  // last member: it ends first, because its lanes use the engine
};

}  // namespace pccl::ring
