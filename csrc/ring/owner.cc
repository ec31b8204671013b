#include "csrc/ring/owner.h"

#include <limits>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::ring {

static_assert(protocol::kMembersMax <= std::numeric_limits<uint8_t>::max());

Owner::Owner(uint64_t slices, uint32_t others)
    : missing_(slices, static_cast<uint8_t>(others)), others_(others) {
  PCCL_ASSERT(others >= 1 && others < protocol::kMembersMax);
}

bool Owner::arrived(uint64_t slice) {
  PCCL_ASSERT(slice < missing_.size() && missing_[slice] > 0);
  if (--missing_[slice] > 0) return false;
  while (combined_ < missing_.size() && missing_[combined_] == 0) ++combined_;
  return true;
}

void Owner::check() const {
  PCCL_ASSERT(combined_ <= missing_.size());
  PCCL_ASSERT(combined_ == missing_.size() || missing_[combined_] > 0);
  PCCL_ASSERT(missing_.empty() || missing_.back() <= others_);
}

}  // namespace pccl::ring
