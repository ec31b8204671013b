// BoundEntries: the memory of each entry of the elected state in this process. Usually they are the
// entries that this peer has offered, in the same order. If it takes further entries (see
// StateSpans), their memory is allocated here. It belongs to SharedEntries.
// This memory has a limit, because its size comes from other peers. If the entries do not fit, an
// error is returned, and nothing is allocated.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/peer/shell/state/state_spans.h"

namespace pccl::peer {

class BoundEntries {
 public:
  BoundEntries() = default;
  explicit BoundEntries(std::shared_ptr<StateSpans> spans) : spans_(std::move(spans)) {}

  // Numbers the entries as in `elected`, and drops those that were added for an earlier state.
  // REQUIRES: the offered entries are a part of `elected`, which is sensible.
  Status bind(const StateSpans::List& elected);
  // Before the first bind() the entries are counted as in the offer.
  const StateSpan& operator[](uint32_t key) const {
    return bound_.empty() ? spans_->all()[key] : bound_[key];
  }
  bool adds() const { return !added_.empty(); }
  bool is_added(uint32_t key) const { return added_.contains(key); }
  std::vector<AddedEntry> take_added();

 private:
  Status check(const StateSpans::List& elected) const;
  bool allocate(uint32_t key, uint64_t bytes);

  std::shared_ptr<StateSpans> spans_;
  std::vector<StateSpan> bound_;  // empty: those that were offered
  std::map<uint32_t, std::shared_ptr<std::byte>> added_;
};

}  // namespace pccl::peer
