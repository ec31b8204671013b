#include "csrc/peer/shell/state/state_spans.h"

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::peer {
namespace {

constexpr size_t kDimensionsMax = protocol::kShapeDimensionsMax;
// Maximum bytes of the entries in a StateList. The limit leaves room for the rest of the message.
constexpr size_t kOfferBytesMax = protocol::kMessageBytesMax - (64u << 10);

Status invalid(const std::string& what) {
  return {Code::kInvalidArgument, "shared state: " + what, {}};
}

// Upper bound of the bytes of one entry in a message.
size_t offered_bytes(const StateSpan& entry) {
  return 32 + entry.key.size() + 8 * entry.shape.size();
}

Status check_span(const StateSpan& entry) {
  const std::string name = "entry \"" + entry.key + "\"";
  if (entry.key.size() > protocol::kStateKeyBytesMax) {
    return invalid("the key \"" + entry.key.substr(0, 64) + "...\" has " +
                   std::to_string(entry.key.size()) + " bytes, at most " +
                   std::to_string(protocol::kStateKeyBytesMax) + " are allowed");
  }
  if (entry.shape.size() > kDimensionsMax) {
    return invalid(name + " has " + std::to_string(entry.shape.size()) + " dimensions, at most " +
                   std::to_string(kDimensionsMax) + " are allowed");
  }
  const auto bytes = protocol::bytes_of({{}, entry.dtype, entry.shape, 0});
  if (bytes != entry.size()) {
    return invalid(name + " has " + std::to_string(entry.size()) + " bytes, its shape says " +
                   (bytes ? std::to_string(*bytes) : "something else"));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<StateSpans>> StateSpans::make(std::vector<StateSpan> entries,
                                                     std::optional<MayAdd> may_add) {
  if (entries.size() > protocol::kStateKeysMax) {
    return invalid(std::to_string(entries.size()) + " entries, at most " +
                   std::to_string(protocol::kStateKeysMax) + " are allowed");
  }
  std::sort(entries.begin(), entries.end(),
            [](const StateSpan& a, const StateSpan& b) { return a.key < b.key; });
  size_t bytes = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Status status = check_span(entries[i]);
    if (!status.ok()) return status;
    if (i > 0 && entries[i].key == entries[i - 1].key) {
      return invalid("the key \"" + entries[i].key + "\" is there twice");
    }
    bytes += offered_bytes(entries[i]);
  }
  if (bytes > kOfferBytesMax) {
    return invalid("its keys and shapes take " + std::to_string(bytes) + " bytes, at most " +
                   std::to_string(kOfferBytesMax) + " are allowed: use shorter keys");
  }
  auto made = std::make_shared<StateSpans>();
  made->entries_ = std::move(entries);
  made->may_add_ = std::move(may_add);
  made->words_ = protocol::LayoutWords(*made->list());
  return made;
}

StateSpans::List StateSpans::describe() const {
  List list;
  list.reserve(entries_.size());
  for (const StateSpan& entry : entries_)
    list.push_back({entry.key, entry.dtype, entry.shape, 0, entry.subtype});
  return list;
}

std::shared_ptr<StateSpans::List> StateSpans::list() {
  if (list_.idle() == nullptr) list_.emplace(describe());
  return list_.lend();
}

const StateSpans::ByKind& StateSpans::by_kind(uint64_t piece_bytes) {
  PCCL_ASSERT(piece_bytes > 0);
  if (by_kind_.piece_bytes == piece_bytes) return by_kind_;
  by_kind_ = {};
  by_kind_.piece_bytes = piece_bytes;
  for (uint32_t key = 0; key < entries_.size(); ++key) {
    const StateSpan& entry = entries_[key];
    if (entry.device != nullptr && entry.size() > 0) {
      by_kind_.on_devices.push_back(key);
    } else if (entry.bytes.size() > piece_bytes) {
      by_kind_.large.push_back(key);
    } else {
      by_kind_.small.push_back(key);
      by_kind_.bytes.push_back(entry.bytes);
    }
  }
  return by_kind_;
}

}  // namespace pccl::peer
