// The part of LinkCore that takes connections from other processes, and checks the hello of the
// other end.

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/link/core.h"

namespace pccl::link {

using protocol::LaneHello;

// The dialler learns the answer a round trip sooner than it would after Accepted. While we dial the
// same peer, it has to wait: each side could take the connection of the other.
void LinkCore::on(const Proven& event) {
  PCCL_ASSERT(keys_.required());
  const auto& [identity, serial, further] = event.shown;
  const PeerId peer = identity.dialler;
  if (is_used(event.shown) || !wrong_serial(peer, serial, false).empty()) return;
  const Choice choice = choose(event.lane, peer, serial, further);
  const bool joins = choice == Choice::kJoin && !dialling_.contains(peer);
  if (!joins && choice != Choice::kJoinFurther) return;
  answered_early_[event.lane] = event.shown;
  emit(SendHello{event.lane, true, hello(peer, serial, further)});
}

void LinkCore::on(const Accepted& event) {
  PCCL_ASSERT(event.proven.has_value() == keys_.required());
  std::optional<protocol::LaneCredential> credential;
  if (event.proven) {
    const std::optional<protocol::Key> key = key_of(event.proven->identity);
    if (!key) {  // refused since the handshake began
      answered_early_.erase(event.lane);
      return emit(Close{event.lane});
    }
    credential = {event.proven->identity, *key};
  }
  while (!pending_.empty() && pending_.size() >= event.room) close(pending_.front());
  const auto [at, fresh] = lanes_.try_emplace(event.lane);
  PCCL_ASSERT(fresh && event.lane.value <= lanes_made_);
  Lane& lane = at->second;
  enter(lane, Phase::kHandshaking);
  lane.address = event.address;
  lane.credential = credential;
  if (event.proven) {
    lane.serial = event.proven->serial;
    lane.further = event.proven->further;
  }
  lane.hello_by = now_ + protocol::kHelloTimeout;
  pending_.push_back(event.lane);
}

LaneHello LinkCore::hello(PeerId other, uint32_t serial, bool further) const {
  return {.run_id = identity_.run_id,
          .self = identity_.self,
          .other = other,
          .machine = identity_.machine,
          .serial = serial,
          .further = further};
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
  if (!lane.dialled && lane.credential && hello->serial != lane.serial)
    return "it has proven connection " + std::to_string(lane.serial) +
           ", and speaks of connection " + std::to_string(hello->serial);
  if (lane.dialled && hello->serial != lane.serial)
    return "it speaks of connection " + std::to_string(hello->serial);
  const std::string wrong = wrong_serial(claimed, hello->serial, lane.dialled);
  if (!wrong.empty()) return wrong;
  if ((lane.dialled || lane.credential) && hello->further != lane.further)
    return hello->further ? "it speaks of a further lane" : "it speaks of a first lane";
  return {};
}

// The reason why the peer cannot mean a connection that has this serial number; empty if it can.
std::string LinkCore::wrong_serial(PeerId peer, uint32_t serial, bool dialled) const {
  const bool by_higher = protocol::made_by_higher(serial);
  if (serial == 0 || by_higher != (dialled == outranks(peer)))
    return "it speaks of connection " + std::to_string(serial);
  const uint32_t last = last_serial(peer);
  if (serial <= protocol::kSerialMax &&
      (serial <= last || serial - last <= protocol::kSerialStepMax))
    return {};
  return "it speaks of connection " + std::to_string(serial) + " after " + std::to_string(last);
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
  if (!lane.dialled && lane.credential && !lane.further) {
    uint32_t& completed = completed_[lane.peer];
    completed = std::max(completed, lane.serial);
  }
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
LinkCore::Choice LinkCore::choose(ConnectionId id, PeerId peer, uint32_t serial,
                                  bool further) const {
  const auto link = links_.find(peer);
  if (further) {
    if (link == links_.end() || link->second.serial != serial) return Choice::kRefuse;
    const auto comes = [&](const auto& answered) {
      return answered.first != id && answered.second.identity.dialler == peer &&
             answered.second.further;
    };
    const auto coming = std::count_if(answered_early_.begin(), answered_early_.end(), comes);
    const size_t lanes = link->second.lanes.size() + static_cast<size_t>(coming);
    return lanes < options_.lanes_max ? Choice::kJoinFurther : Choice::kRefuse;
  }
  if (link != links_.end()) return Choice::kCheckLink;
  if (given_up(peer)) return Choice::kRefuse;
  const auto dial = dialling_.find(peer);
  if (dial == dialling_.end()) return Choice::kJoin;
  if (serial <= dial->second.dead_serial) return Choice::kRefuse;
  return is_handshaking(dial->second) && outranks(peer) ? Choice::kWait : Choice::kJoin;
}

void LinkCore::on_hello_of_pending(ConnectionId id) {
  const size_t erased = std::erase(pending_, id);
  PCCL_ASSERT(erased == 1);
  const Lane& lane = lanes_.at(id);
  const PeerId peer = lane.peer;
  switch (choose(id, peer, lane.serial, lane.further)) {
    case Choice::kRefuse: return close(id);
    case Choice::kCheckLink: close(id); return check_liveness(peer);
    case Choice::kJoin: return join(id);
    case Choice::kJoinFurther: return join_further(id);
    case Choice::kWait: break;
  }
  if (answered_early_.contains(id)) return join(id);  // the link is up at the other end
  Dialling& dial = dialling_.at(peer);
  if (dial.crossing) close(*dial.crossing);
  dial.crossing = id;
}

}  // namespace pccl::link
