#include "csrc/link/narrow_paths.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::link {

uint32_t NarrowPaths::segment(PeerId peer) const {
  const auto at = all_.find(peer);
  return at == all_.end() ? 0 : at->second.segment();
}

bool NarrowPaths::given_up(PeerId peer) const {
  const auto at = all_.find(peer);
  return at != all_.end() && at->second.given_up();
}

void NarrowPaths::ended_without_progress(PeerId peer, uint32_t segment) {
  all_[peer].ended_without_progress(segment);
}

bool NarrowPaths::arrived(PeerId peer, uint32_t segment) {
  const auto at = all_.find(peer);
  return at != all_.end() && at->second.arrived(segment);
}

bool NarrowPaths::forget(PeerId peer) {
  const auto path = all_.extract(peer);
  return !path.empty() && path.mapped().announced();
}

uint32_t NarrowPaths::narrowest() const {
  uint32_t least = 0;
  for (const auto& [peer, path] : all_) {
    const uint32_t one = path.segment();
    if (one > 0) least = least == 0 ? one : std::min(least, one);
  }
  return least;
}

std::optional<uint32_t> NarrowPaths::news() {
  if (narrowest() == accepted_) return std::nullopt;
  return accepted_ = narrowest();
}

void NarrowPaths::check() const {
  for (const auto& [peer, path] : all_) path.check();
  PCCL_ASSERT(accepted_ == narrowest());
}

}  // namespace pccl::link
