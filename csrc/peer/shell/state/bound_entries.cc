#include "csrc/peer/shell/state/bound_entries.h"

#include <new>
#include <string>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/protocol/state.h"

namespace pccl::peer {
namespace {

constexpr std::align_val_t kVectorAlignment{64};  // of a vector register

}  // namespace

Status BoundEntries::bind(const StateSpans::List& elected) {
  bound_.clear();
  added_.clear();
  const std::vector<StateSpan>& own = spans_->all();
  if (own.size() == elected.size()) return {};
  PCCL_ASSERT(spans_->may_add() && own.size() < elected.size());
  Status status = check(elected);
  auto at = own.begin();
  for (const protocol::StateEntry& entry : elected) {
    if (at != own.end() && at->key == entry.key) {
      bound_.push_back(*at++);
      continue;
    }
    bound_.push_back({entry.key, entry.dtype, entry.shape, {}});
    bound_.back().subtype = entry.subtype;
    const uint64_t bytes = *protocol::bytes_of(entry);
    if (!status.ok() || allocate(static_cast<uint32_t>(bound_.size() - 1), bytes)) continue;
    status = {Code::kSystem,
              "no memory for the " + std::to_string(bytes) + " bytes of entry \"" + entry.key +
                  "\", which this process did not have",
              {}};
  }
  PCCL_ASSERT(at == own.end());
  if (!status.ok()) added_.clear();
  return status;
}

// Names come from other peers, too: only those that can be shown are taken.
Status BoundEntries::check(const StateSpans::List& elected) const {
  const StateSpans::MayAdd& may = *spans_->may_add();
  uint64_t bytes = 0;
  size_t count = 0;
  auto at = spans_->all().begin();
  for (const protocol::StateEntry& entry : elected) {
    if (at != spans_->all().end() && at->key == entry.key) {
      ++at;
      continue;
    }
    if (entry.key.empty() || !is_printable(entry.key)) {
      return {Code::kSharedState,
              "the state of the run has an entry with the name \"" + printable(entry.key) +
                  "\", which is no printable text: rename it there, or bring it here",
              {}};
    }
    if (may.other_names.contains(entry.key)) {
      return {Code::kSharedState,
              "\"" + entry.key +
                  "\" is another name of a tensor here, and an entry of its own in "
                  "the state of the run: tie the tensors in the same way on all peers",
              {}};
    }
    bytes += *protocol::bytes_of(entry);
    ++count;
  }
  if (bytes <= may.bytes_max) return {};
  return {Code::kSharedState,
          "the state of the run has " + count_text(count, "tensor") + " of " +
              std::to_string(bytes) + " bytes that this process lacks, and it can take " +
              std::to_string(may.bytes_max) + " bytes of memory: use a host with more memory",
          {}};
}

bool BoundEntries::allocate(uint32_t key, uint64_t bytes) {
  auto* const memory = static_cast<std::byte*>(operator new(bytes, kVectorAlignment, std::nothrow));
  if (memory == nullptr) return false;
  added_[key] = {memory, [](std::byte* at) { operator delete(at, kVectorAlignment); }};
  bound_[key].bytes = {memory, bytes};
  return true;
}

std::vector<AddedEntry> BoundEntries::take_added() {
  std::vector<AddedEntry> out;
  for (auto& [key, memory] : added_) {
    const StateSpan& entry = bound_[key];
    out.push_back({entry.key, entry.dtype, entry.shape, std::move(memory), entry.subtype});
  }
  added_.clear();
  return out;
}

}  // namespace pccl::peer
