#include "csrc/ring/eager.h"

#include <utility>

#include "csrc/base/assert.h"

namespace pccl::ring {

void EagerBudget::leaves(OpKey op, uint64_t bytes) {
  PCCL_ASSERT(bytes <= room(true));
  const bool first = unasked_.emplace(op, bytes).second;
  PCCL_ASSERT(first);
  used_ += bytes;
}

void EagerBudget::requested(OpKey op) {
  const auto at = unasked_.find(op);
  if (at == unasked_.end()) return;
  used_ -= at->second;
  unasked_.erase(at);
}

std::optional<uint32_t> UnexpectedMessages::arriving(const protocol::FrameHeader& header) {
  const uint64_t cost = eager_cost(header.length);
  if (cost > protocol::kEagerBytes - used_ || is_full_for(header.op)) return std::nullopt;
  used_ += cost;
  Kept& kept = kept_[header.op];
  kept.digest = header.digest;
  kept.chunks[kept.begun] = {header};
  return kept.begun++;
}

bool UnexpectedMessages::keep(const protocol::FrameHeader& credit) {
  if (is_full_for(credit.op)) return false;
  kept_[credit.op].credit = {credit.digest, credit.value};
  return true;
}

UnexpectedMessages::Kept* UnexpectedMessages::find(OpKey op) {
  const auto at = kept_.find(op);
  return at == kept_.end() ? nullptr : &at->second;
}

void UnexpectedMessages::requested(OpKey op) {
  for (auto& [index, chunk] : kept_.at(op).chunks) {
    if (std::exchange(chunk.counted, false)) used_ -= eager_cost(chunk.header.length);
  }
}

void UnexpectedMessages::take(OpKey op, uint32_t index) {
  auto& chunks = kept_.at(op).chunks;
  const auto at = chunks.find(index);
  PCCL_ASSERT(at != chunks.end());
  if (at->second.counted) used_ -= eager_cost(at->second.header.length);
  chunks.erase(at);
}

void UnexpectedMessages::drop(OpKey op) {
  while (!kept_.at(op).chunks.empty()) take(op, kept_.at(op).chunks.begin()->first);
  kept_.erase(op);
}

void EagerBudget::check() const {
  uint64_t used = 0;
  for (const auto& [op, bytes] : unasked_) used += bytes;
  PCCL_ASSERT(used_ == used && used <= protocol::kEagerBytes);
}

void UnexpectedMessages::check() const {
  PCCL_ASSERT(kept_.size() <= protocol::kOpsOpenMax);
  uint64_t used = 0;
  for (const auto& [op, kept] : kept_) {
    PCCL_ASSERT(kept.begun > 0 || kept.credit);
    PCCL_ASSERT(kept.chunks.empty() || kept.chunks.rbegin()->first < kept.begun);
    for (const auto& [index, chunk] : kept.chunks) {
      PCCL_ASSERT(chunk.header.op == op && chunk.header.digest == kept.digest);
      if (chunk.counted) used += eager_cost(chunk.header.length);
    }
  }
  PCCL_ASSERT(used_ == used && used <= protocol::kEagerBytes);
}

}  // namespace pccl::ring
