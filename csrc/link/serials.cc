#include "csrc/link/serials.h"

#include <algorithm>

#include "csrc/protocol/limits.h"

namespace pccl::link {

uint32_t Serials::last(PeerId peer, uint32_t dead) const {
  const auto given = given_.find(peer);
  return std::max({made_, dead, given == given_.end() ? 0 : given->second});
}

uint32_t Serials::next(PeerId peer, uint32_t dead, bool higher) {
  const uint32_t serial = protocol::next_serial(last(peer, dead), higher);
  made_ = protocol::next_serial(made_, higher);
  return given_[peer] = serial;
}

std::string Serials::refusal(uint32_t serial, uint32_t last, bool by_higher) {
  if (serial == 0 || protocol::made_by_higher(serial) != by_higher)
    return "it speaks of connection " + std::to_string(serial);
  if (serial <= protocol::kSerialMax &&
      (serial <= last || serial - last <= protocol::kSerialStepMax))
    return {};
  return "it speaks of connection " + std::to_string(serial) + " after " + std::to_string(last);
}

void Serials::completed(PeerId dialler, uint32_t serial) {
  uint32_t& highest = completed_[dialler];
  highest = std::max(highest, serial);
}

bool Serials::is_used(const protocol::LaneIntroduction& shown) const {
  const auto completed = completed_.find(shown.identity.dialler);
  return !shown.further && completed != completed_.end() && shown.serial <= completed->second;
}

void Serials::forget(PeerId peer) {
  given_.erase(peer);
  completed_.erase(peer);
}

}  // namespace pccl::link
