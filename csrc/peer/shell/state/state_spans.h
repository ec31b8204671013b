// StateSpans: the entries of a shared state in this process, checked and sorted by key. They serve
// any number of sync_shared_state calls, so that a call with many entries need not describe all of
// them again. One thread at a time may use a StateSpans. A lent list may be given back on any
// thread.
// Failure: kInvalidArgument for entries that cannot be offered: a duplicate key, a shape that does
// not match the number of bytes, more than the limits allow.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/base/reusable.h"
#include "csrc/memory/device.h"
#include "csrc/protocol/messages.h"
#include "csrc/protocol/state.h"

namespace pccl::peer {

// One entry of a shared state, in memory of the host or of a device.
struct StateSpan {
  std::string key;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::span<std::byte> bytes;
  // An entry on a device has `device` and `on_device`, its memory; `bytes` is empty. The device
  // outlives the call.
  memory::Device* device = nullptr;
  memory::DeviceBytesPtr on_device = nullptr;
  uint8_t subtype = 0;  // see protocol::StateEntry

  size_t size() const { return on_device ? on_device->size() : bytes.size(); }
};

// An entry of the agreed state that this peer did not have, in memory of its own.
struct AddedEntry {
  std::string key;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::shared_ptr<std::byte> memory;
  uint8_t subtype = 0;
};

class StateSpans {
 public:
  using List = std::vector<protocol::StateEntry>;

  // The agreed state may have further entries, which this peer takes, too.
  struct MayAdd {
    uint64_t bytes_max = 0;             // bytes of all further entries together
    std::set<std::string> other_names;  // keys that a further entry must not have
  };

  static Result<std::shared_ptr<StateSpans>> make(std::vector<StateSpan> entries,
                                                  std::optional<MayAdd> may_add = {});

  const std::vector<StateSpan>& all() const { return entries_; }
  const std::optional<MayAdd>& may_add() const { return may_add_; }
  const protocol::LayoutWords& words() const { return words_; }
  // The descriptions of the entries, in the same order. The hashes are unset: the caller sets them.
  // Reuses the list of an earlier call if that was given back.
  std::shared_ptr<List> list();

  // The numbers of the entries, sorted by the way in which they are hashed.
  struct ByKind {
    std::vector<uint32_t> on_devices;               // without empty entries
    std::vector<uint32_t> large;                    // in host memory, and larger than `piece_bytes`
    std::vector<uint32_t> small;                    // all other entries
    std::vector<std::span<const std::byte>> bytes;  // of the entries in `small`
    uint64_t piece_bytes = 0;                       // 0: nothing is sorted yet
  };
  const ByKind& by_kind(uint64_t piece_bytes);

 private:
  List describe() const;

  std::vector<StateSpan> entries_;
  std::optional<MayAdd> may_add_;
  protocol::LayoutWords words_;
  Reusable<List> list_;
  ByKind by_kind_;
};

}  // namespace pccl::peer
