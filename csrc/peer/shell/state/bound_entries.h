// BoundEntries: the memory of each entry of the elected state in this process. Usually the elected
// state has the entries that this peer has offered, in the same order. If the peer takes further
// entries (see StateSpans), BoundEntries allocates their memory. It belongs to SharedEntries. The
// memory of further entries has a limit, because its size comes from other peers. If these entries
// do not fit, bind() returns an error and allocates nothing.
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

  // Numbers the entries as in `elected`, and drops the entries that were added for an earlier
  // state. REQUIRES: `elected` is sensible (protocol::is_sensible), and has all offered entries.
  Status bind(const StateSpans::List& elected);
  // `key` is the number of the entry in the elected state. Before the first bind(), it is the
  // number in the offer.
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
  std::vector<StateSpan> bound_;  // empty: the entries of the offer
  std::map<uint32_t, std::shared_ptr<std::byte>> added_;
};

}  // namespace pccl::peer
