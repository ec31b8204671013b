#include "csrc/ring/owner.h"

#include <limits>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::ring {

static_assert(protocol::kMembersMax <= std::numeric_limits<uint8_t>::max());

Owner::Owner(uint64_t slices, uint32_t others, bool holds_results)
    : missing_(slices, static_cast<uint8_t>(others)), others_(others) {
  if (holds_results) staying_ = missing_;
  PCCL_ASSERT(others >= 1 && others < protocol::kMembersMax);
}

bool Owner::arrived(uint64_t slice) {
  PCCL_ASSERT(slice < missing_.size() && missing_[slice] > 0);
  if (--missing_[slice] > 0) return false;
  while (combined_ < missing_.size() && missing_[combined_] == 0) ++combined_;
  return true;
}

bool Owner::left(uint64_t slice) {
  if (staying_.empty()) return false;
  PCCL_ASSERT(slice < staying_.size() && missing_[slice] == 0 && staying_[slice] > 0);
  if (--staying_[slice] > 0) return false;
  while (free_ < staying_.size() && staying_[free_] == 0) ++free_;
  return true;
}

void Owner::check() const {
  PCCL_ASSERT(combined_ <= missing_.size());
  PCCL_ASSERT(combined_ == missing_.size() || missing_[combined_] > 0);
  PCCL_ASSERT(missing_.empty() || missing_.back() <= others_);
  if (staying_.empty()) return;
  PCCL_ASSERT(staying_.size() == missing_.size() && free_ <= combined_);
  PCCL_ASSERT(free_ == staying_.size() || staying_[free_] > 0);
}

}  // namespace pccl::ring
