#include "master/group/held_messages.h"

#include <string>
#include <utility>

#include "csrc/protocol/codec.h"
#include "csrc/protocol/limits.h"

namespace pccl::master {
namespace {

// Maximum number of held messages of one member: room for the begin and the end of each of its open
// operations, and for other messages.
constexpr size_t kHeldMax = 3 * protocol::kOpsOpenMax;

}  // namespace

Status HeldMessages::hold(PeerId peer, const protocol::Message& message) {
  OfPeer& held = all_[peer];
  const auto* const vote = std::get_if<protocol::Vote>(&message);
  for (protocol::Message& before : held.messages) {
    auto* const earlier = std::get_if<protocol::Vote>(&before);
    if (vote == nullptr || earlier == nullptr) continue;
    earlier->background = vote->background;
    if (*vote != *earlier) return violation("two votes while the master gathers its members");
    return {};
  }
  if (held.messages.size() >= kHeldMax) {
    return violation("more than there can be to say while the master gathers its members");
  }
  const size_t bytes = sizeof message + protocol::encoded_bytes(message);
  if (context_.held_bytes + bytes > protocol::kHeldBytesMax) {
    return violation("the members of the run have sent " + std::to_string(context_.held_bytes) +
                     " bytes that cannot be handled yet, at most " +
                     std::to_string(protocol::kHeldBytesMax));
  }
  held.bytes += bytes;
  context_.held_bytes += bytes;
  held.messages.push_back(message);
  return {};
}

void HeldMessages::uncount(size_t bytes) {
  PCCL_ASSERT(context_.held_bytes >= bytes);
  context_.held_bytes -= bytes;
}

void HeldMessages::forget(PeerId peer) {
  const auto at = all_.find(peer);
  if (at == all_.end()) return;
  uncount(at->second.bytes);
  all_.erase(at);
}

std::vector<HeldMessages::Held> HeldMessages::take() {
  std::vector<Held> taken;
  for (auto& [peer, held] : all_) {
    for (protocol::Message& message : held.messages) taken.push_back({peer, std::move(message)});
    uncount(held.bytes);
  }
  all_.clear();
  return taken;
}

size_t HeldMessages::bytes() const {
  size_t bytes = 0;
  for (const auto& [peer, held] : all_) bytes += held.bytes;
  return bytes;
}

std::vector<PeerId> HeldMessages::senders() const {
  std::vector<PeerId> senders;
  for (const auto& [peer, held] : all_) senders.push_back(peer);
  return senders;
}

void HeldMessages::check() const {
  for (const auto& [peer, held] : all_) PCCL_ASSERT(held.messages.size() <= kHeldMax);
}

}  // namespace pccl::master
