#include "csrc/ring/shell/data_plane.h"

#include <utility>
#include <variant>

namespace pccl::ring {

DataPlane::DataPlane(link::DriverOptions options, const Callbacks& callbacks, net::LoopShare& loop,
                     std::shared_ptr<memory::Pool> pool)
    : loop_(loop),
      engine_({.on_event = callbacks.on_event,
               .on_fail_link =
                   [this](PeerId peer, const std::string& why) {
                     links_.step(link::Suspected{peer, why});
                   }},
              std::move(pool)),
      links_(std::move(options),
             {.on_event =
                  [on_event = callbacks.on_event](link::DriverEvent event) {
                    std::visit([&](auto& what) { on_event(std::move(what)); }, event);
                  },
              .on_warning = callbacks.on_warning},
             loop, engine_) {}

link::LinkDriver& DataPlane::links() {
  loop_.assert_on_loop();
  return links_;
}

Engine& DataPlane::engine() {
  loop_.assert_on_loop();
  return engine_;
}

void DataPlane::begin_epoch(Epoch epoch, std::vector<PeerId> peers,
                            std::vector<PeerId> neighbours) {
  loop_.assert_on_loop();
  engine_.begin_epoch(epoch, std::move(peers));
  links_.set_neighbours(std::move(neighbours));
}

LinkSample DataPlane::sample(PeerId peer) const {
  loop_.assert_on_loop();
  const auto received = engine_.received_from(peer);
  return {peer, received.has_value(), received.value_or(0), links_.opening(peer)};
}

DataCounters DataPlane::counters() const {
  loop_.assert_on_loop();
  return {engine_.counters(), links_.counters()};
}

}  // namespace pccl::ring
