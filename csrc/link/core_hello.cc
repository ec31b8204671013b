// The part of LinkCore that takes connections from other processes, and checks what the other end
// of a connection says in its hello.

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/link/core.h"

namespace pccl::link {

using protocol::LaneHello;

void LinkCore::on(const Accepted& event) {
  PCCL_ASSERT(event.proven.has_value() == keys_.required());
  std::optional<protocol::LaneCredential> credential;
  if (event.proven) {
    const std::optional<protocol::Key> key = key_of(*event.proven);
    if (!key) return emit(Close{event.lane});  // refused since the handshake began
    credential = {*event.proven, *key};
  }
  while (!pending_.empty() && pending_.size() >= event.room) close(pending_.front());
  const auto [at, fresh] = lanes_.try_emplace(event.lane);
  PCCL_ASSERT(fresh && event.lane.value <= lanes_made_);
  Lane& lane = at->second;
  enter(lane, Phase::kHandshaking);
  lane.address = event.address;
  lane.credential = credential;
  lane.hello_by = now_ + protocol::kHelloTimeout;
  pending_.push_back(event.lane);
}

LaneHello LinkCore::hello(const Lane& lane) const {
  return {.run_id = identity_.run_id,
          .self = identity_.self,
          .other = lane.peer,
          .machine = identity_.machine,
          .serial = lane.serial,
          .further = lane.further};
}

std::string LinkCore::refusal(const Lane& lane, const std::optional<LaneHello>& hello) const {
  if (!hello) return "it did not introduce itself";
  if (!hello->versions.contains(identity_.version)) {
    return protocol::mismatch({"that peer", hello->versions},
                              protocol::speaker_of_run("this run", identity_.version));
  }
  if (hello->run_id != identity_.run_id) return "it belongs to another run";
  if (hello->other != identity_.self) return "it looks for peer " + text(hello->other);
  const PeerId claimed = hello->self;
  if (!claimed || claimed == identity_.self || (lane.dialled && claimed != lane.peer))
    return "it says that it is peer " + text(claimed);
  if (!lane.dialled && lane.credential && claimed != lane.credential->identity.dialler)
    return "it has proven to be peer " + text(lane.credential->identity.dialler) +
           ", and says that it is peer " + text(claimed);
  const bool by_higher = protocol::made_by_higher(hello->serial);
  if (hello->serial == 0 || by_higher != (lane.dialled == outranks(claimed)) ||
      (lane.dialled && hello->serial != lane.serial))
    return "it speaks of connection " + std::to_string(hello->serial);
  const uint32_t last = last_serial(claimed);
  if (hello->serial > protocol::kSerialMax ||
      (hello->serial > last && hello->serial - last > protocol::kSerialStepMax))
    return "it speaks of connection " + std::to_string(hello->serial) + " after " +
           std::to_string(last);
  if (lane.dialled && hello->further != lane.further)
    return hello->further ? "it speaks of a further lane" : "it speaks of a first lane";
  return {};
}

// A refused connection is closed without an answer, so that an unknown process learns nothing from
// us.
void LinkCore::on(const HelloReceived& event) {
  const auto at = lanes_.find(event.lane);
  if (at == lanes_.end() || at->second.phase != Phase::kHandshaking) return;
  const bool again = !is_silent(at->second);
  const std::string why =
      again ? "it speaks before it was answered" : refusal(at->second, event.hello);
  if (why.empty()) return on_valid_hello(event.lane, *event.hello, event.rtt);
  emit(Close{event.lane});
  ended(event.lane, at->second.address + ": " + why, LinkFault::kAnotherPeer);
}

void LinkCore::on_valid_hello(ConnectionId id, const LaneHello& hello, Duration rtt) {
  Lane& lane = lanes_.at(id);
  PCCL_ASSERT(is_silent(lane) && hello.self && hello.self != identity_.self && hello.serial > 0);
  PCCL_ASSERT(!lane.dialled || (lane.peer == hello.self && lane.serial == hello.serial));
  lane.same_machine = hello.machine == identity_.machine && identity_.machine != 0;
  lane.rtt = rtt;
  lane.peer = hello.self;
  lane.serial = hello.serial;
  lane.further = hello.further;
  if (!lane.dialled) return on_hello_of_pending(id);
  lane.further ? join_further(id) : join(id);
}

// Whether its hello is still to come.
bool LinkCore::is_silent(const Lane& lane) const {
  return lane.phase == Phase::kHandshaking && (lane.dialled || !lane.peer);
}

// If both sides dial each other at the same time, the connection from the higher id stays, if it
// gets established. The lower id answers it immediately. The higher id waits for the outcome of its
// own attempts.
void LinkCore::on_hello_of_pending(ConnectionId id) {
  const size_t erased = std::erase(pending_, id);
  PCCL_ASSERT(erased == 1);
  const Lane& lane = lanes_.at(id);
  const PeerId peer = lane.peer;
  const auto link = links_.find(peer);
  if (lane.further) {
    const bool known = link != links_.end() && link->second.serial == lane.serial &&
                       link->second.lanes.size() < options_.lanes_max;
    return known ? join_further(id) : close(id);
  }
  if (link != links_.end()) {
    close(id);
    return check_liveness(peer);
  }
  if (given_up(peer)) return close(id);
  const auto dial = dialling_.find(peer);
  if (dial != dialling_.end() && lane.serial <= dial->second.dead_serial) return close(id);
  const bool crosses = dial != dialling_.end() && is_handshaking(dial->second);
  if (!crosses || !outranks(peer)) return join(id);
  if (dial->second.crossing) close(*dial->second.crossing);
  dial->second.crossing = id;
}

}  // namespace pccl::link
