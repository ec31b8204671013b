// A call without devices: hash; lend the tensors themselves and the staging buffers of pieces;
// check each piece; install. Entries on devices: the devices begin to hash, and meanwhile the host
// hashes the entries in its memory. Entries to be sent are copied to the host before the ring gets
// them. install() copies fetched entries to the device.
// Failures:
//   - A device fails to hash: the offer stands, and the first transfer fails (see failure()).
//   - A device fails to copy out: the transfer fails, for all members.
//   - A device fails to copy in: the call has succeeded for all others.

#include "csrc/peer/shell/state/shared_entries.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "csrc/base/little_endian.h"
#include "csrc/memory/state_hash.h"
#include "csrc/peer/shell/state/pinned_pieces.h"
#include "csrc/protocol/state.h"

namespace pccl::peer {
namespace {

void store_words(const std::vector<uint64_t>& words, std::byte* to) {
  for (size_t at = 0; at < words.size(); ++at)
    store_little_endian(to + at * sizeof(uint64_t), words[at]);
}

std::vector<uint64_t> load_words(const std::byte* from, size_t count) {
  std::vector<uint64_t> words(count);
  for (size_t at = 0; at < count; ++at)
    words[at] = load_little_endian<uint64_t>(from + at * sizeof(uint64_t));
  return words;
}

}  // namespace

Result<std::shared_ptr<SharedEntries>> SharedEntries::make(std::vector<StateSpan> entries,
                                                           const Options& options,
                                                           const Interrupted& interrupted) {
  Result<std::shared_ptr<StateSpans>> spans = StateSpans::make(std::move(entries));
  if (!spans.ok()) return spans.status();
  return make(std::move(spans.value()), options, interrupted);
}

std::shared_ptr<SharedEntries> SharedEntries::make(std::shared_ptr<StateSpans> spans,
                                                   const Options& options,
                                                   const Interrupted& interrupted) {
  auto made = std::make_shared<SharedEntries>();
  made->spans_ = std::move(spans);
  made->entries_ = BoundEntries(made->spans_);
  made->offer_.partial = made->spans_->may_add().has_value();
  made->list_ = made->spans_->list();
  made->options_ = options;
  made->hash(interrupted);
  if (made->list_->size() <= protocol::kStateListedMax) {
    made->offer_.entries = *made->list_;
  } else {
    made->offer_.digest = made->spans_->words().state_hash(made->hashes_);
  }
  return made;
}

// ---- Entries on devices ----

std::vector<SharedEntries::Group> SharedEntries::on_devices(
    const std::vector<uint32_t>& keys) const {
  std::vector<Group> groups;
  for (const uint32_t key : keys) {
    const StateSpan& span = entry(key);
    if (span.device == nullptr || span.size() == 0) continue;
    auto at = std::find_if(groups.begin(), groups.end(),
                           [&](const Group& group) { return group.device == span.device; });
    if (at == groups.end()) at = groups.insert(at, Group{span.device, {}});
    at->keys.push_back(key);
  }
  return groups;
}

std::vector<memory::DeviceBytesPtr> SharedEntries::memory_of(const Group& group) const {
  std::vector<memory::DeviceBytesPtr> memory;
  for (const uint32_t key : group.keys) memory.push_back(entry(key).on_device);
  return memory;
}

// `first` and `last` are positions in the list of entries of the group.
Status SharedEntries::error_of(const Group& group, size_t first, size_t last,
                               const Status& why) const {
  const auto quoted = [&](size_t at) { return "\"" + entry(group.keys[at]).key + "\""; };
  std::string what = "entry " + quoted(first);
  if (first != last) what = "one of the entries " + quoted(first) + " to " + quoted(last);
  return {why.code, what + ": " + why.message, {}};
}

Status SharedEntries::error_of(const Group& group, const Status& why) const {
  return error_of(group, 0, group.keys.size() - 1, why);
}

// ---- Hashes ----

void SharedEntries::hash(const Interrupted& interrupted) {
  const StateSpans::ByKind& by_kind = spans_->by_kind(options_.piece_bytes);
  hashes_.assign(spans_->all().size(), 0);
  std::vector<Group> groups = on_devices(by_kind.on_devices);
  failure_ = hash_on_devices(groups, interrupted);
  hash_on_host(by_kind);
  for (Group& group : groups) {
    if (group.hashes == nullptr) continue;
    const Status status = finish_hash(group);
    if (failure_.ok()) failure_ = status;
  }
  for (size_t key = 0; key < hashes_.size(); ++key) (*list_)[key].hash = hashes_[key];
}

// Small entries are hashed together, by all threads of the team.
void SharedEntries::hash_on_host(const StateSpans::ByKind& entries) {
  for (const uint32_t key : entries.large) hash_parts(key);
  std::vector<uint64_t> hashes = memory::state_hashes(entries.bytes);
  if (hashes.size() == hashes_.size()) {
    hashes_ = std::move(hashes);
    return;
  }
  for (size_t at = 0; at < hashes.size(); ++at) hashes_[entries.small[at]] = hashes[at];
}

// Computes the hash of a large entry, and with it the hash sums of its parts.
void SharedEntries::hash_parts(uint32_t key) {
  const std::span<const std::byte> bytes = entry(key).bytes;
  memory::StateHasher hasher;
  uint64_t before = 0;
  std::vector<uint64_t>& sums = sums_[key];
  for (size_t at = 0; at < bytes.size(); at += options_.piece_bytes) {
    hasher.add(bytes.subspan(at, std::min<size_t>(options_.piece_bytes, bytes.size() - at)));
    sums.push_back(hasher.sum() - before);
    before = hasher.sum();
  }
  hashes_[key] = hasher.value();
}

// Starts the hashing on all devices that can hash, and hashes the entries of the other devices
// here. All marks come first, so that each stands for the work before this call.
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

// The host waits for the mark, and then starts the device: the wait may be long, and the caller may
// interrupt it.
Status SharedEntries::start_hash(Group& group, const Interrupted& interrupted) {
  Status status = wait_for(*group.mark, options_.timeout, interrupted);
  if (status.code == Code::kOperationTimeout)
    status.message += ", and was given this work before the call";
  if (!status.ok()) return error_of(group, status);
  Result<std::unique_ptr<memory::DeviceHashes>> hashes = group.device->hash(memory_of(group));
  if (!hashes.ok()) return error_of(group, hashes.status());
  group.hashes = std::move(hashes.value());
  return group.hashes == nullptr ? hash_copies(group) : Status{};
}

Status SharedEntries::finish_hash(Group& group) {
  const Status status = wait_for(*group.hashes, options_.timeout);
  if (status.code == Code::kOperationTimeout)
    keep_for_ever(std::make_shared<std::pair<Group, std::vector<memory::DeviceBytesPtr>>>(
        group, memory_of(group)));
  if (!status.ok()) return error_of(group, status);
  const std::vector<uint64_t> values = group.hashes->values();
  PCCL_ASSERT(values.size() == group.keys.size());
  for (size_t i = 0; i < values.size(); ++i) hashes_[group.keys[i]] = values[i];
  return {};
}

Status SharedEntries::hash_copies(const Group& group) {
  std::vector<memory::StateHasher> hashers(group.keys.size());
  PinnedPieces pieces(*group.device, options_.timeout);
  const PinnedPieces::Outcome outcome = pieces.out(
      memory_of(group),
      [&](size_t which, size_t, std::span<std::byte> bytes) { hashers[which].add(bytes); });
  if (!outcome.status.ok()) return error_of(group, outcome.first, outcome.last, outcome.status);
  for (size_t i = 0; i < hashers.size(); ++i) hashes_[group.keys[i]] = hashers[i].value();
  return {};
}

// ---- Pieces ----

void SharedEntries::begin(const BeginPieces& plan) {
  if (plan.keeps) return;
  elected_ = plan.plan.entries;
  refusal_ = entries_.bind(elected_);
  if (spans_->may_add()) copies_.clear();  // their keys belong to the plan before
  layout_ = PieceLayout(elected_, plan.plan.keys, options_.piece_bytes);
  manifest_.clear();
  staging_.clear();
}

Status SharedEntries::allocate(Buffer& buffer, size_t bytes, const char* what) const {
  buffer.reset(new (std::nothrow) std::byte[std::max<size_t>(bytes, 1)]);
  if (buffer != nullptr) return {};
  return {Code::kSystem,
          "no memory to " + std::string(what) + " " + std::to_string(bytes) +
              " bytes of the shared state",
          {}};
}

Result<std::span<std::byte>> SharedEntries::lend(OpKey op, const PieceOp& piece) {
  if (!failure_.ok()) return failure_;
  if (!refusal_.ok()) return refusal_;
  return piece.receives ? landing(op, piece.what) : source(op, piece);
}

void SharedEntries::take_back(OpKey op) { lent_.erase(op); }

// Returns the memory of the tensor if the piece may be received there, otherwise an empty span.
std::span<std::byte> SharedEntries::in_tensor(uint32_t piece) const {
  const std::vector<PieceLayout::Segment> segments = layout_.segments(piece);
  if (segments.size() != 1 || !is_on_host(segments[0].key)) return {};
  if (!options_.in_place && !entries_.is_added(segments[0].key)) return {};
  return home_of(segments[0]);
}

// The bytes of an entry of this peer: in the copy on the host, if there is one, otherwise in the
// tensor.
std::span<std::byte> SharedEntries::home_of(const PieceLayout::Segment& segment) const {
  const auto copy = copies_.find(segment.key);
  if (copy != copies_.end()) return {copy->second.get() + segment.offset, segment.bytes};
  if (segment.bytes == 0) return {};
  return entry(segment.key).bytes.subspan(segment.offset, segment.bytes);
}

Result<std::span<std::byte>> SharedEntries::landing(OpKey op, uint32_t what) {
  const uint32_t piece = what & ~kSpare;
  if (piece >= kManifest) {
    const size_t words = piece == kManifest ? layout_.part_count() : (layout_.count() + 63) / 64;
    const size_t bytes = words * sizeof(uint64_t);
    if (Status status = allocate(lent_[op], bytes, "receive"); !status.ok()) return status;
    return std::span<std::byte>(lent_[op].get(), bytes);
  }
  bytes_received_ += layout_.bytes(piece);
  if (const std::span<std::byte> tensor = in_tensor(piece); !tensor.empty()) return tensor;
  Buffer& buffer = staging_[piece];
  if (buffer == nullptr) {
    if (Status status = allocate(buffer, layout_.bytes(piece), "receive"); !status.ok())
      return status;
  }
  return std::span<std::byte>(buffer.get(), layout_.bytes(piece));
}

Result<std::span<std::byte>> SharedEntries::source(OpKey op, const PieceOp& piece) {
  const uint32_t number = piece.what & ~kSpare;
  if (number < kManifest) {
    bytes_sent_ += layout_.bytes(number);
    const auto staged = staging_.find(number);
    if (staged != staging_.end())
      return std::span<std::byte>(staged->second.get(), layout_.bytes(number));
    return gather(op, number);
  }
  if (number == kManifest) {
    if (Status status = make_manifest(); !status.ok()) return status;
  }
  const std::vector<uint64_t>& words = number == kManifest ? manifest_ : piece.have;
  const size_t bytes = words.size() * sizeof(uint64_t);
  if (Status status = allocate(lent_[op], bytes, "send"); !status.ok()) return status;
  store_words(words, lent_[op].get());
  return std::span<std::byte>(lent_[op].get(), bytes);
}

// Returns the bytes of a piece that is to be sent. A piece of one entry is sent from its tensor.
// Several small entries are copied to one buffer: a transfer of many small spans would cost more.
Result<std::span<std::byte>> SharedEntries::gather(OpKey op, uint32_t piece) {
  const std::vector<PieceLayout::Segment> segments = layout_.segments(piece);
  std::vector<uint32_t> keys;
  keys.reserve(segments.size());
  for (const PieceLayout::Segment& segment : segments) keys.push_back(segment.key);
  if (Status status = copy_out(keys); !status.ok()) return status;
  if (segments.size() == 1) return home_of(segments[0]);
  if (Status status = allocate(lent_[op], layout_.bytes(piece), "send"); !status.ok())
    return status;
  std::byte* to = lent_[op].get();
  for (const PieceLayout::Segment& segment : segments) {
    if (segment.bytes == 0) continue;
    std::memcpy(to, home_of(segment).data(), segment.bytes);
    to += segment.bytes;
  }
  return std::span<std::byte>(lent_[op].get(), layout_.bytes(piece));
}

// Copies the entries that are on devices to the host. Each entry is copied once in a call, although
// it may be sent to several peers.
Status SharedEntries::copy_out(const std::vector<uint32_t>& keys) {
  std::vector<uint32_t> missing;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(missing),
               [this](uint32_t key) { return !copies_.contains(key); });
  for (const Group& group : on_devices(missing)) {
    Buffers buffers;
    for (const uint32_t key : group.keys) {
      if (Status status = allocate(buffers[key], entry(key).size(), "send"); !status.ok())
        return status;
    }
    PinnedPieces pieces(*group.device, options_.timeout);
    const PinnedPieces::Outcome outcome =
        pieces.out(memory_of(group), [&](size_t which, size_t offset, std::span<std::byte> bytes) {
          std::memcpy(buffers[group.keys[which]].get() + offset, bytes.data(), bytes.size());
        });
    if (!outcome.status.ok()) return error_of(group, outcome.first, outcome.last, outcome.status);
    copies_.merge(buffers);
  }
  return {};
}

// The hash sums of the parts of large entries are known from the hashing, except for entries on a
// device and for a plan with added entries.
Status SharedEntries::make_manifest() {
  if (!manifest_.empty()) return {};
  std::vector<uint64_t> manifest;
  for (uint32_t piece = 0; piece < layout_.count(); ++piece) {
    if (!layout_.is_part(piece)) continue;
    const PieceLayout::Segment segment = layout_.segments(piece)[0];
    const auto sums = entries_.adds() ? sums_.end() : sums_.find(segment.key);
    if (sums == sums_.end()) {
      if (Status status = copy_out({segment.key}); !status.ok()) return status;
      manifest.push_back(memory::state_sum(home_of(segment), segment.offset));
      continue;
    }
    const uint64_t first = segment.offset / options_.piece_bytes;
    const uint64_t end = (segment.offset + segment.bytes - 1) / options_.piece_bytes + 1;
    uint64_t sum = 0;
    for (uint64_t at = first; at < end; ++at) sum += sums->second[at];
    manifest.push_back(sum);
  }
  manifest_ = std::move(manifest);
  return {};
}

SharedEntries::Checked SharedEntries::check(OpKey op, uint32_t what) {
  const uint32_t piece = what & ~kSpare;
  if (piece < kManifest) return {check_piece(piece), {}};
  const Buffer received = std::move(lent_[op]);
  lent_.erase(op);
  if (piece == kManifest) return {check_manifest(received.get()), {}};
  return {{}, load_words(received.get(), (layout_.count() + 63) / 64)};
}

Status SharedEntries::wrong(uint32_t key) const {
  return {Code::kSharedState,
          "entry \"" + entry(key).key +
              "\" arrived with another hash than was agreed on: its owner changed it during the "
              "call",
          {}};
}

Status SharedEntries::check_piece(uint32_t piece) {
  const std::vector<PieceLayout::Segment> segments = layout_.segments(piece);
  std::span<std::byte> bytes = in_tensor(piece);
  if (bytes.empty()) bytes = {staging_.at(piece).get(), layout_.bytes(piece)};
  if (layout_.is_part(piece)) {
    const uint64_t sum = memory::state_sum(bytes, segments[0].offset);
    return sum == manifest_.at(layout_.part_index(piece)) ? Status{} : wrong(segments[0].key);
  }
  std::vector<std::span<const std::byte>> entries;
  entries.reserve(segments.size());
  for (const PieceLayout::Segment& segment : segments) {
    entries.push_back(bytes.first(segment.bytes));
    bytes = bytes.subspan(segment.bytes);
  }
  const std::vector<uint64_t> hashes = memory::state_hashes(entries);
  for (size_t at = 0; at < hashes.size(); ++at) {
    if (hashes[at] != elected_[segments[at].key].hash) return wrong(segments[at].key);
  }
  return {};
}

// The sums of an entry's parts must add up to its hash.
Status SharedEntries::check_manifest(const std::byte* received) {
  if (!manifest_.empty()) return {};  // another peer has sent it before
  std::vector<uint64_t> manifest = load_words(received, layout_.part_count());
  uint64_t sum = 0;
  for (uint32_t piece = 0; piece < layout_.count(); ++piece) {
    if (!layout_.is_part(piece)) continue;
    const PieceLayout::Segment segment = layout_.segments(piece)[0];
    if (segment.offset == 0) sum = 0;
    sum += manifest[layout_.part_index(piece)];
    const uint64_t bytes = entry(segment.key).size();
    if (segment.offset + segment.bytes < bytes) continue;
    if (memory::hash_of_sum(sum, bytes) == elected_[segment.key].hash) continue;
    return {Code::kSharedState,
            "the hashes of the parts of entry \"" + entry(segment.key).key +
                "\" do not add up to the hash that was agreed on",
            {}};
  }
  manifest_ = std::move(manifest);
  return {};
}

// ---- Installation ----

void SharedEntries::read_staging(uint32_t key, uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const uint32_t piece = layout_.piece_at(key, offset);
    size_t before = 0;  // bytes of the piece before this entry
    for (const PieceLayout::Segment& segment : layout_.segments(piece)) {
      if (segment.key != key) {
        before += segment.bytes;
        continue;
      }
      const size_t skip = offset - segment.offset;
      const size_t bytes = std::min<size_t>(to.size(), segment.bytes - skip);
      std::memcpy(to.data(), staging_.at(piece).get() + before + skip, bytes);
      to = to.subspan(bytes);
      offset += bytes;
      break;
    }
  }
}

// The devices come first: if one of them fails, the tensors in host memory stay as they were.
Status SharedEntries::install(const std::vector<uint32_t>& keys) {
  for (const Group& group : on_devices(keys)) {
    PinnedPieces pieces(*group.device, options_.timeout);
    const PinnedPieces::Outcome outcome =
        pieces.in(memory_of(group), [&](size_t which, size_t offset, std::span<std::byte> bytes) {
          read_staging(group.keys[which], offset, bytes);
        });
    if (outcome.status.ok()) continue;
    Status status = error_of(group, outcome.first, outcome.last, outcome.status);
    status.message +=
        "; the other members have the agreed state, and this entry may hold a part "
        "of it: restore it, or end this process";
    return status;
  }
  auto next = keys.begin();
  for (const uint32_t piece : layout_.pieces_of(keys)) {
    if (!in_tensor(piece).empty()) continue;
    const std::byte* from = staging_.at(piece).get();
    for (const PieceLayout::Segment& segment : layout_.segments(piece)) {
      while (next != keys.end() && *next < segment.key) ++next;
      const bool lacks = next != keys.end() && *next == segment.key;
      if (lacks && is_on_host(segment.key) && segment.bytes > 0)
        std::memcpy(entry(segment.key).bytes.data() + segment.offset, from, segment.bytes);
      from += segment.bytes;
    }
  }
  return {};
}

void SharedEntries::release() {
  entries_ = {};
  spans_.reset();
  list_.reset();
  staging_.clear();
  copies_.clear();
  lent_.clear();
}

}  // namespace pccl::peer
