#include "master/runs/journal.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/base/token.h"
#include "csrc/net/checksum.h"
#include "csrc/protocol/wire.h"

namespace pccl::master {

using protocol::bounded;
using protocol::Is;
using protocol::shown;

// ---- Fields, in the order of records.h and journal.h ----

void fields(auto& wire, Is<EpochRecord> auto& r) {
  wire(r.epoch, r.first_verdict, bounded(r.verdicts, protocol::kVerdictsMax), r.end);
}
void fields(auto& wire, Is<Holder> auto& r) {
  wire(bounded(r.token, kTokenIdBytesMax), shown(r.name, protocol::kNameBytesMax));
}
void fields(auto& wire, Is<MemberRecord> auto& r) {
  wire(r.peer, bounded(r.seen_host, protocol::kHostBytesMax), r.seen_loopback);
  wire(bounded(r.host, protocol::kHostBytesMax), r.port, r.order);
  wire(bounded(r.launch, protocol::kLaunchBytesMax));
  wire(bounded(r.others, protocol::kOtherAddressesMax), shown(r.name, protocol::kNameBytesMax));
  wire(r.holder);
}
void fields(auto& wire, Is<MembershipRecord> auto& r) {
  wire(r.group, r.settings, r.founders, r.min_peers, r.previous, r.current, r.start);
  wire(bounded(r.members, protocol::kMembersMax));
}
void fields(auto& wire, Is<SharedStateRecord> auto& r) { wire(r.group, r.revision, r.hash); }
void fields(auto& wire, Is<Started> auto& e) { wire(e.incarnation); }
void fields(auto& wire, Is<RunOpened> auto& e) {
  wire(bounded(e.run, protocol::kRunNameBytesMax), e.run_id);
  wire(bounded(e.origin, protocol::kHostBytesMax), e.version, e.decisions);
}
void fields(auto& wire, Is<RunFinished> auto& e) {
  wire(bounded(e.run, protocol::kRunNameBytesMax), e.ended);
}
void fields(auto& wire, Is<RunForgotten> auto& e) {
  wire(bounded(e.run, protocol::kRunNameBytesMax));
}

namespace {

using Bytes = std::vector<std::byte>;

constexpr char kMagic[8] = {'p', 'c', 'c', 'l', 'j', 'r', 'n', 'l'};
constexpr uint32_t kVersion = 9;
constexpr size_t kReleaseBytes = 16;
constexpr size_t kReleaseAt = sizeof kMagic + 4;
constexpr size_t kHeaderBytes = kReleaseAt + kReleaseBytes + 4;  // in every version
constexpr size_t kFramesAt = kHeaderBytes + sizeof(uint64_t) + 4;
constexpr size_t kFrameBytes = 8;  // bytes before the payload
constexpr size_t kPieceBytes = 64u << 10;

// These numbers are in the file and never change.
enum class Kind : uint8_t {
  kStarted = 1,
  kOpened,
  kForgotten,
  kMembership,
  kSharedState,
  kFinished
};
constexpr Kind last(Kind) { return Kind::kFinished; }

// Whether a keyring can have the tokens of all members (keyring.cc).
bool has_real_holders(const MembershipRecord& record) {
  return std::all_of(record.members.begin(), record.members.end(), [](const MemberRecord& member) {
    return !member.holder || (is_token_id(member.holder->token) && !member.holder->name.empty());
  });
}

// ---- Writing ----

void put(Bytes& out, const Entry& entry) {
  protocol::Writer write{out};
  if (const auto* started = std::get_if<Started>(&entry)) {
    write(Kind::kStarted, *started);
  } else if (const auto* opened = std::get_if<RunOpened>(&entry)) {
    write(Kind::kOpened, *opened);
  } else if (const auto* finished = std::get_if<RunFinished>(&entry)) {
    write(Kind::kFinished, *finished);
  } else if (const auto* forgotten = std::get_if<RunForgotten>(&entry)) {
    write(Kind::kForgotten, *forgotten);
  } else if (const auto* recorded = std::get_if<RunRecorded>(&entry)) {
    const auto* membership = std::get_if<MembershipRecord>(&recorded->record);
    const auto run = bounded(recorded->run, protocol::kRunNameBytesMax);
    if (membership != nullptr) {
      PCCL_ASSERT(has_real_holders(*membership));
      write(Kind::kMembership, run, *membership);
    } else {
      write(Kind::kSharedState, run, std::get<SharedStateRecord>(recorded->record));
    }
  }
}

// Includes the length, so that a length that was not completely written is detected.
uint32_t checksum_of(std::span<const std::byte> length, std::span<const std::byte> payload) {
  net::Checksum sum;
  sum.add(length);
  sum.add(payload);
  return sum.value();
}

// ---- Reading ----

template <typename Number = uint32_t>
Number number_at(std::span<const std::byte> bytes, size_t at) {
  PCCL_ASSERT(at <= bytes.size() && bytes.size() - at >= sizeof(Number));
  Number number = 0;
  protocol::Reader read{bytes.subspan(at, sizeof number)};
  read(number);
  return number;
}

Entry read_entry(protocol::Reader& read) {
  Kind kind{};
  read(kind);
  RunRecorded recorded;
  switch (kind) {
    case Kind::kStarted: {
      Started started;
      read(started);
      return started;
    }
    case Kind::kOpened: {
      RunOpened opened;
      read(opened);
      return opened;
    }
    case Kind::kFinished: {
      RunFinished finished;
      read(finished);
      return finished;
    }
    case Kind::kForgotten: {
      RunForgotten forgotten;
      read(forgotten);
      return forgotten;
    }
    case Kind::kMembership:
      read(bounded(recorded.run, protocol::kRunNameBytesMax),
           recorded.record.emplace<MembershipRecord>());
      break;
    case Kind::kSharedState:
      read(bounded(recorded.run, protocol::kRunNameBytesMax),
           recorded.record.emplace<SharedStateRecord>());
      break;
  }
  return recorded;
}

// Returns why the content of an entry is refused; empty if it is not refused.
std::string refusal_of(const Entry& entry) {
  const auto* const recorded = std::get_if<RunRecorded>(&entry);
  const auto* const membership =
      recorded == nullptr ? nullptr : std::get_if<MembershipRecord>(&recorded->record);
  if (membership == nullptr) return "";
  if (!has_real_holders(*membership)) return "a member with a token that no keyring can have";
  return check(membership->settings).message;
}

Status damaged(size_t at, const std::string& why) {
  return {Code::kSystem, "is damaged at byte " + std::to_string(at) + ": " + why, {}};
}

// A file of `bytes` bytes that had at least `bytes_min` when it got its name.
Status cut_off(size_t bytes, uint64_t bytes_min) {
  return {Code::kSystem,
          "was cut off: it has " + std::to_string(bytes) + " bytes, and it had at least " +
              std::to_string(bytes_min) + " when it was made",
          {}};
}

std::string release_in(std::span<const std::byte> header) {
  PCCL_ASSERT(header.size() >= kReleaseAt + kReleaseBytes);
  std::string release(kReleaseBytes, '\0');
  std::memcpy(release.data(), header.data() + kReleaseAt, kReleaseBytes);
  release.resize(std::min(release.find('\0'), release.size()));
  return "pccl " + printable(release);
}

Status check_header(std::span<const std::byte> file) {
  const auto magic = std::as_bytes(std::span(kMagic)).first(std::min(file.size(), sizeof kMagic));
  if (!std::equal(magic.begin(), magic.end(), file.begin()))
    return Status{Code::kSystem, "is not a journal of pccl", {}};
  if (file.size() < kHeaderBytes) return cut_off(file.size(), kFramesAt);
  constexpr size_t kSumAt = kReleaseAt + kReleaseBytes;
  if (net::checksum(file.first(kSumAt)) != number_at(file, kSumAt))
    return damaged(0, "its header has another checksum");
  const uint32_t version = number_at(file, sizeof kMagic);
  if (version == kVersion) return {};
  return Status{Code::kSystem,
                "is of version " + std::to_string(version) + ", which " + release_in(file) +
                    " reads, and this pccl " + protocol::kRelease +
                    " does not: go on with that release",
                {}};
}

// Returns the length of the file's compact form. The file is not shorter.
Result<uint64_t> read_compact_bytes(std::span<const std::byte> file) {
  Status status = check_header(file);
  if (!status.ok()) return status;
  if (file.size() < kFramesAt) return cut_off(file.size(), kFramesAt);
  const auto length = file.subspan(kHeaderBytes, sizeof(uint64_t));
  if (net::checksum(length) != number_at(file, kHeaderBytes + length.size()))
    return damaged(kHeaderBytes, "the length of its compact form has another checksum");
  const auto bytes = number_at<uint64_t>(length, 0);
  if (file.size() < bytes) return cut_off(file.size(), bytes);
  return bytes;
}

// The payload of the frame at `at`; nothing if the frame is cut off or garbage.
std::optional<std::span<const std::byte>> frame_at(std::span<const std::byte> file, size_t at) {
  PCCL_ASSERT(at <= file.size());
  if (file.size() - at < kFrameBytes) return std::nullopt;
  const uint32_t length = number_at(file, at);
  if (length == 0 || length > file.size() - at - kFrameBytes) return std::nullopt;
  const auto payload = file.subspan(at + kFrameBytes, length);
  if (checksum_of(file.subspan(at, 4), payload) != number_at(file, at + 4)) return std::nullopt;
  return payload;
}

}  // namespace

void Memory::apply(const Entry& entry) {
  if (const auto* started = std::get_if<Started>(&entry)) {
    incarnation = std::max(incarnation, started->incarnation);
  } else if (const auto* opened = std::get_if<RunOpened>(&entry)) {
    RunRecord& run = runs[opened->run];
    run.run_id = opened->run_id;
    run.origin = opened->origin;
    run.version = opened->version;
    run.decisions = opened->decisions;
    run.memberships.clear();
    run.ended.reset();
  } else if (const auto* finished = std::get_if<RunFinished>(&entry)) {
    const auto run = runs.find(finished->run);
    if (run == runs.end()) return;
    run->second.memberships.clear();
    run->second.ended = finished->ended;
  } else if (const auto* forgotten = std::get_if<RunForgotten>(&entry)) {
    runs.erase(forgotten->run);
  } else if (const auto* recorded = std::get_if<RunRecorded>(&entry)) {
    const auto run = runs.find(recorded->run);
    if (run == runs.end()) return;
    if (const auto* membership = std::get_if<MembershipRecord>(&recorded->record)) {
      auto& memberships = run->second.memberships;
      if (run->second.ended || membership->members.empty()) {
        memberships.erase(membership->group);
      } else {
        memberships.insert_or_assign(membership->group, *membership);
      }
    } else {
      const auto& state = std::get<SharedStateRecord>(recorded->record);
      run->second.shared_states[state.group] = state;
    }
  }
}

namespace journal {

namespace {

// The beginning of a file whose compact form has `bytes` bytes.
Bytes header_before(uint64_t bytes) {
  Bytes out(sizeof kMagic);
  std::memcpy(out.data(), kMagic, sizeof kMagic);
  protocol::Writer{out}(kVersion);
  const std::string_view release(protocol::kRelease);
  for (size_t i = 0; i < kReleaseBytes; ++i)
    out.push_back(static_cast<std::byte>(i < release.size() ? release[i] : '\0'));
  protocol::Writer{out}(net::checksum(out));
  PCCL_ASSERT(out.size() == kHeaderBytes);
  Bytes length;
  protocol::Writer{length}(bytes);
  out.insert(out.end(), length.begin(), length.end());
  protocol::Writer{out}(net::checksum(length));
  PCCL_ASSERT(out.size() == kFramesAt);
  return out;
}

void append_frame(const Bytes& payload, Bytes& out) {
  PCCL_ASSERT(!payload.empty() && payload.size() <= UINT32_MAX);
  Bytes length;
  protocol::Writer{length}(static_cast<uint32_t>(payload.size()));
  out.insert(out.end(), length.begin(), length.end());
  protocol::Writer{out}(checksum_of(length, payload));
  out.insert(out.end(), payload.begin(), payload.end());
}

// Calls `use` with the payload of each frame of the compact form.
void each_payload(const Memory& memory, const auto& use) {
  Bytes payload;
  const auto end_frame = [&] {
    use(payload);
    payload.clear();
  };
  put(payload, Started{memory.incarnation});
  for (const auto& [name, run] : memory.runs) {
    put(payload, RunOpened{name, run.run_id, run.origin, run.version, run.decisions});
    for (const auto& [group, record] : run.memberships) put(payload, RunRecorded{name, record});
    for (const auto& [group, record] : run.shared_states) put(payload, RunRecorded{name, record});
    if (run.ended) put(payload, RunFinished{name, *run.ended});
    if (payload.size() >= kPieceBytes) end_frame();
  }
  if (!payload.empty()) end_frame();
}

}  // namespace

Bytes header() { return header_before(kFramesAt); }

void append(const std::vector<Entry>& entries, Bytes& out) {
  PCCL_ASSERT(!entries.empty());
  Bytes payload;
  for (const Entry& entry : entries) put(payload, entry);
  append_frame(payload, out);
}

// The length stands before the frames, and only one piece is in memory at a time. So all entries
// are encoded twice: for their length, then for the file.
void compact(const Memory& memory, const std::function<void(const Bytes&)>& write) {
  uint64_t bytes = kFramesAt;
  each_payload(memory, [&bytes](const Bytes& payload) { bytes += kFrameBytes + payload.size(); });
  Bytes piece = header_before(bytes);
  uint64_t written = 0;
  each_payload(memory, [&](const Bytes& payload) {
    append_frame(payload, piece);
    write(piece);
    written += piece.size();
    piece.clear();
  });
  PCCL_ASSERT(written == bytes);
}

Bytes compacted(const Memory& memory) {
  Bytes out;
  compact(memory,
          [&out](const Bytes& piece) { out.insert(out.end(), piece.begin(), piece.end()); });
  return out;
}

Result<Replayed> replay(std::span<const std::byte> file) {
  Replayed out;
  if (file.empty()) return out;
  const Result<uint64_t> compact_bytes = read_compact_bytes(file);
  if (!compact_bytes.ok()) return compact_bytes.status();
  size_t at = kFramesAt;
  while (const auto payload = frame_at(file, at)) {
    protocol::Reader read{*payload};
    while (read.refusal().empty() && read.at() < payload->size()) {
      const Entry entry = read_entry(read);
      if (!read.refusal().empty()) break;
      if (const std::string why = refusal_of(entry); !why.empty()) return damaged(at, why);
      out.memory.apply(entry);
    }
    if (!read.refusal().empty()) return damaged(at, read.refusal());
    at += kFrameBytes + payload->size();
  }
  // All of the compact form was durable before the file got its name, so none of it can be torn.
  if (at < compact_bytes.value()) {
    return damaged(at, "no frame begins there, and its compact form has " +
                           std::to_string(compact_bytes.value()) + " bytes");
  }
  // Only the last write can be torn. So if an intact frame follows a bad one, the file is damaged.
  for (size_t later = at + 1; later + kFrameBytes < file.size(); ++later) {
    if (frame_at(file, later)) return damaged(at, "what follows is good again");
  }
  out.bytes = at;
  return out;
}

}  // namespace journal
}  // namespace pccl::master
