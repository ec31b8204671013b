#include "csrc/link/lane_keys.h"

#include "csrc/base/assert.h"
#include "csrc/net/keys.h"
#include "csrc/protocol/limits.h"

namespace pccl::link {
namespace {

constexpr size_t kKeysMax = 2;

}  // namespace

void LaneKeys::accept_with(const AcceptingKey& key) {
  if (!keys_.empty() && key.incarnation <= keys_.back().incarnation) return;
  keys_.push_back(key);
  if (keys_.size() > kKeysMax) keys_.pop_front();
  // A credential is useless once the key of its incarnation is forgotten. So a gone peer need not
  // be remembered longer than that key.
  std::erase_if(order_, [this](PeerId peer) {
    const bool over = gone_.at(peer) < keys_.front().incarnation;
    if (over) gone_.erase(peer);
    return over;
  });
}

// Only the last kGonePeersMax gone peers are remembered. An older one looks like a new peer. Its
// credential fits one acceptor only, and the master makes that acceptor drop it.
void LaneKeys::forget(PeerId peer) {
  if (!required()) return;
  const auto [at, fresh] = gone_.try_emplace(peer);
  at->second = keys_.back().incarnation;
  if (fresh) order_.push_back(peer);
  if (order_.size() <= protocol::kGonePeersMax) return;
  gone_.erase(order_.front());
  order_.pop_front();
}

std::optional<protocol::Key> LaneKeys::find(const protocol::LaneIdentity& identity, PeerId self,
                                            uint64_t run_id) const {
  if (identity.acceptor != self || identity.dialler == self || !identity.dialler)
    return std::nullopt;
  const auto gone = gone_.find(identity.dialler);
  if (gone != gone_.end() && identity.incarnation <= gone->second) return std::nullopt;
  for (const AcceptingKey& one : keys_) {
    if (one.incarnation == identity.incarnation) return net::lane_key(one.key, run_id, identity);
  }
  return std::nullopt;
}

void LaneKeys::check() const {
  PCCL_ASSERT(keys_.size() <= kKeysMax);
  PCCL_ASSERT(keys_.size() < 2 || keys_.front().incarnation < keys_.back().incarnation);
  PCCL_ASSERT(gone_.size() == order_.size() && order_.size() <= protocol::kGonePeersMax);
  for (const PeerId peer : order_) {
    PCCL_ASSERT(gone_.at(peer) >= keys_.front().incarnation);
    PCCL_ASSERT(gone_.at(peer) <= keys_.back().incarnation);
  }
}

}  // namespace pccl::link
