// A call without devices: hash, lend the tensors themselves and the staging buffers, verify,
// install. Entries on devices: the devices begin to hash, and meanwhile the host hashes its own.
// Entries to be sent are copied to the host before the ring gets them. Fetched ones are copied to
// the device by install().
// Failures:
//   - A device fails to hash: the offer stands, and the first transfer fails (see failure()).
//   - A device fails to copy out: the transfer fails, for all members.
//   - A device fails to copy in: the call has succeeded for all others.

#include "csrc/peer/shell/shared_entries.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "csrc/memory/state_hash.h"
#include "csrc/peer/shell/pinned_pieces.h"

namespace pccl::peer {
namespace {

constexpr size_t kDimensionsMax = 64;
// Limit of an offer. It leaves room for the rest of its message.
constexpr size_t kOfferBytesMax = protocol::kMessageBytesMax - (64u << 10);

Status invalid(const std::string& what) {
  return {Code::kInvalidArgument, "shared state: " + what, {}};
}

// Upper bound of the bytes of one entry in a message.
size_t offered_bytes(const StateSpan& entry) {
  return 32 + entry.key.size() + 8 * entry.shape.size();
}

Status check(const StateSpan& entry) {
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
  uint64_t bytes = element_bytes(entry.dtype);
  bool sensible = true;
  for (const int64_t size : entry.shape) {
    sensible = sensible && size >= 0 &&
               !__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes);
  }
  if (!sensible || bytes != entry.size()) {
    return invalid(name + " has " + std::to_string(entry.size()) + " bytes, its shape says " +
                   (sensible ? std::to_string(bytes) : "something else"));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<SharedEntries>> SharedEntries::make(std::vector<StateSpan> entries,
                                                           Duration timeout,
                                                           const Interrupted& interrupted) {
  if (entries.size() > protocol::kStateKeysMax) {
    return invalid(std::to_string(entries.size()) + " entries, at most " +
                   std::to_string(protocol::kStateKeysMax) + " are allowed");
  }
  std::sort(entries.begin(), entries.end(),
            [](const StateSpan& a, const StateSpan& b) { return a.key < b.key; });
  size_t bytes = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Status status = check(entries[i]);
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
  auto made = std::make_shared<SharedEntries>();
  made->entries_ = std::move(entries);
  made->timeout_ = timeout;
  made->hash(interrupted);
  return made;
}

// ---- Entries on devices ----

std::vector<SharedEntries::Group> SharedEntries::on_devices(
    const std::vector<uint32_t>& keys) const {
  std::vector<Group> groups;
  for (const uint32_t key : keys) {
    const StateSpan& entry = entries_[key];
    if (entry.device == nullptr || entry.size() == 0) continue;
    auto at = std::find_if(groups.begin(), groups.end(),
                           [&](const Group& group) { return group.device == entry.device; });
    if (at == groups.end()) at = groups.insert(at, Group{entry.device, {}});
    at->keys.push_back(key);
  }
  return groups;
}

std::vector<memory::DeviceBytesPtr> SharedEntries::memory_of(const Group& group) const {
  std::vector<memory::DeviceBytesPtr> memory;
  for (const uint32_t key : group.keys) memory.push_back(entries_[key].on_device);
  return memory;
}

// `first` and `last` count the entries of the group.
Status SharedEntries::error_of(const Group& group, size_t first, size_t last,
                               const Status& why) const {
  const auto quoted = [&](size_t at) { return "\"" + entries_[group.keys[at]].key + "\""; };
  std::string what = "entry " + quoted(first);
  if (first != last) what = "one of the entries " + quoted(first) + " to " + quoted(last);
  return {why.code, what + ": " + why.message, {}};
}

Status SharedEntries::error_of(const Group& group, const Status& why) const {
  return error_of(group, 0, group.keys.size() - 1, why);
}

// ---- Hashes ----

void SharedEntries::hash(const Interrupted& interrupted) {
  for (const StateSpan& entry : entries_)
    offer_.entries.push_back({entry.key, entry.dtype, entry.shape, 0});
  std::vector<uint32_t> all(entries_.size());
  std::iota(all.begin(), all.end(), 0u);
  std::vector<Group> groups = on_devices(all);
  failure_ = hash_on_devices(groups, interrupted);
  for (const uint32_t key : all) {
    const StateSpan& entry = entries_[key];
    if (entry.device == nullptr || entry.size() == 0)
      offer_.entries[key].hash = memory::state_hash(entry.bytes.data(), entry.bytes.size());
  }
  for (Group& group : groups) {
    if (group.hashes == nullptr) continue;
    const Status status = finish_hash(group);
    if (failure_.ok()) failure_ = status;
  }
}

// Begins to hash wherever a device can, and hashes the rest. All marks come first: they are about
// the work before this call.
Status SharedEntries::hash_on_devices(std::vector<Group>& groups, const Interrupted& interrupted) {
  for (Group& group : groups) {
    Result<memory::DeviceEventPtr> mark = group.device->mark();
    if (!mark.ok()) return error_of(group, mark.status());
    group.mark = std::move(mark.value());
  }
  for (Group& group : groups) {
    if (Status status = start_hash(group, interrupted); !status.ok()) return status;
  }
  return {};
}

// The host waits for the mark, not the device: that wait may be long, and may be given up.
Status SharedEntries::start_hash(Group& group, const Interrupted& interrupted) {
  Status status = wait_for(*group.mark, timeout_, interrupted);
  if (status.code == Code::kOperationTimeout)
    status.message += ", and was given this work before the call";
  if (!status.ok()) return error_of(group, status);
  Result<std::unique_ptr<memory::DeviceHashes>> hashes = group.device->hash(memory_of(group));
  if (!hashes.ok()) return error_of(group, hashes.status());
  group.hashes = std::move(hashes.value());
  return group.hashes == nullptr ? hash_copies(group) : Status{};
}

Status SharedEntries::finish_hash(Group& group) {
  const Status status = wait_for(*group.hashes, timeout_);
  if (status.code == Code::kOperationTimeout)
    keep_for_ever(std::make_shared<std::pair<Group, std::vector<memory::DeviceBytesPtr>>>(
        group, memory_of(group)));
  if (!status.ok()) return error_of(group, status);
  const std::vector<uint64_t> values = group.hashes->values();
  PCCL_ASSERT(values.size() == group.keys.size());
  for (size_t i = 0; i < values.size(); ++i) offer_.entries[group.keys[i]].hash = values[i];
  return {};
}

Status SharedEntries::hash_copies(const Group& group) {
  std::vector<memory::StateHasher> hashers(group.keys.size());
  PinnedPieces pieces(*group.device, timeout_);
  const PinnedPieces::Outcome outcome = pieces.out(
      memory_of(group),
      [&](size_t which, size_t, std::span<std::byte> bytes) { hashers[which].add(bytes); });
  if (!outcome.status.ok()) return error_of(group, outcome.first, outcome.last, outcome.status);
  for (size_t i = 0; i < hashers.size(); ++i)
    offer_.entries[group.keys[i]].hash = hashers[i].value();
  return {};
}

// ---- Transfers ----

Status SharedEntries::allocate(Buffers& buffers, uint32_t key, const char* what) {
  const size_t bytes = entries_[key].size();
  std::unique_ptr<std::byte[]>& buffer = buffers[key];
  buffer.reset(new (std::nothrow) std::byte[std::max<size_t>(bytes, 1)]);
  if (buffer != nullptr) return {};
  return {Code::kSystem,
          std::string("no memory to ") + what + " the " + std::to_string(bytes) +
              " bytes of entry \"" + entries_[key].key + "\"",
          {}};
}

Result<std::vector<std::span<std::byte>>> SharedEntries::lend(const std::vector<uint32_t>& keys,
                                                              bool receives) {
  if (!failure_.ok()) return failure_;
  if (!receives) {
    if (Status status = copy_out(keys); !status.ok()) return status;
  }
  std::vector<std::span<std::byte>> spans;
  for (const uint32_t key : keys) {
    const StateSpan& entry = entries_[key];
    (receives ? bytes_received_ : bytes_sent_) += entry.size();
    if (receives) {
      if (Status status = allocate(staging_, key, "receive"); !status.ok()) return status;
      spans.emplace_back(staging_[key].get(), entry.size());
    } else if (const auto copy = copies_.find(key); copy != copies_.end()) {
      spans.emplace_back(copy->second.get(), entry.size());
    } else {
      spans.push_back(entry.bytes);
    }
  }
  return spans;
}

// Copies those entries to the host that are on devices, once in a call: it may send them to several
// peers.
Status SharedEntries::copy_out(const std::vector<uint32_t>& keys) {
  std::vector<uint32_t> missing;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(missing),
               [this](uint32_t key) { return !copies_.contains(key); });
  for (const Group& group : on_devices(missing)) {
    Buffers buffers;
    for (const uint32_t key : group.keys) {
      if (Status status = allocate(buffers, key, "send"); !status.ok()) return status;
    }
    PinnedPieces pieces(*group.device, timeout_);
    const PinnedPieces::Outcome outcome =
        pieces.out(memory_of(group), [&](size_t which, size_t offset, std::span<std::byte> bytes) {
          std::memcpy(buffers[group.keys[which]].get() + offset, bytes.data(), bytes.size());
        });
    if (!outcome.status.ok()) return error_of(group, outcome.first, outcome.last, outcome.status);
    copies_.merge(buffers);
  }
  return {};
}

Status SharedEntries::verify(const std::vector<uint32_t>& keys,
                             const std::vector<uint64_t>& hashes) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    const StateSpan& entry = entries_[keys[i]];
    if (memory::state_hash(staging_.at(keys[i]).get(), entry.size()) == hashes[i]) continue;
    return {Code::kSharedState,
            "entry \"" + entry.key +
                "\" arrived with another hash than was agreed on: its owner changed "
                "it during the call",
            {}};
  }
  return {};
}

// The devices come first: if one of them fails, the tensors in memory of the host stay as they
// were.
Status SharedEntries::install(const std::vector<uint32_t>& keys) {
  for (const Group& group : on_devices(keys)) {
    PinnedPieces pieces(*group.device, timeout_);
    const PinnedPieces::Outcome outcome =
        pieces.in(memory_of(group), [&](size_t which, size_t offset, std::span<std::byte> bytes) {
          std::memcpy(bytes.data(), staging_.at(group.keys[which]).get() + offset, bytes.size());
        });
    if (outcome.status.ok()) continue;
    Status status = error_of(group, outcome.first, outcome.last, outcome.status);
    status.message +=
        "; the other members have the agreed state, and this entry may hold a part "
        "of it: restore it, or end this process";
    return status;
  }
  for (const uint32_t key : keys) {
    const std::span<std::byte> own = entries_[key].bytes;
    if (!own.empty()) std::memcpy(own.data(), staging_.at(key).get(), own.size());
  }
  return {};
}

void SharedEntries::release() {
  entries_.clear();
  staging_.clear();
  copies_.clear();
}

}  // namespace pccl::peer
