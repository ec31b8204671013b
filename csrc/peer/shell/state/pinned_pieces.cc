// Copies out: a piece is allotted to the next bytes of the spans, the device fills it, `take` reads
// it, and it is allotted again. Copies in: `fill` writes to it after it was allotted.
// Failure: the device fails, or does not finish. The other piece may then be under way; the
// destructor waits for it.

#include "csrc/peer/shell/state/pinned_pieces.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/mutex.h"
#include "csrc/memory/state_hash.h"

namespace pccl::peer {
namespace {

constexpr Duration kBusyPoll = std::chrono::microseconds(200);
constexpr Duration kPauseMin = std::chrono::microseconds(50);
constexpr Duration kPauseMax = std::chrono::milliseconds(1);
constexpr Duration kInterruptPeriod = std::chrono::milliseconds(100);

constexpr size_t kUnit = memory::StateHasher::kUnitBytes;
static_assert(PinnedPieces::kPieceBytes % kUnit == 0);

// In a piece, each part begins at a multiple of this number.
constexpr size_t kAlignment = 64;
size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Status wait_for(memory::DeviceEvent& event, Duration limit,
                const std::function<bool()>& interrupted) {
  const Instant start = monotonic_now();
  Instant asked = start;
  Duration pause = kPauseMin;
  while (true) {
    Result<bool> reached = event.reached();
    if (!reached.ok()) return reached.status();
    if (reached.value()) return {};
    const Instant now = monotonic_now();
    if (now - start >= limit) {
      return {Code::kOperationTimeout, "the device has not finished within " + text(limit), {}};
    }
    if (interrupted && now - asked >= kInterruptPeriod) {
      asked = now;
      if (interrupted()) return {Code::kInvalidState, "interrupted", {}};
    }
    if (now - start < kBusyPoll) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);  // devices have no callbacks: poll again
      pause = std::min(2 * pause, kPauseMax);
    }
  }
}

void keep_for_ever(std::shared_ptr<void> what) {
  static Mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  const Lock lock(mutex);
  kept->push_back(std::move(what));
}

PinnedPieces::~PinnedPieces() {
  for (Piece& piece : pieces_) {
    if (piece.event != nullptr && !too_slow_) static_cast<void>(finish(piece));
    if (piece.event != nullptr) keep_for_ever(std::make_shared<Piece>(std::move(piece)));
  }
}

PinnedPieces::Outcome PinnedPieces::run(const Spans& spans, bool out, const Use& use) {
  for (const Piece& piece : pieces_) PCCL_ASSERT(out || piece.event == nullptr);
  Position next;
  const auto failed = [](Status why, const Piece& piece) {
    return Outcome{std::move(why), piece.parts.front().which, piece.parts.back().which};
  };
  const auto use_all = [&use](const Piece& piece) {
    for (const Part& part : piece.parts) use(part.which, part.offset, part.bytes);
  };
  for (size_t turn = 0;; ++turn) {
    Piece& piece = pieces_[turn % kPieces];
    if (piece.event != nullptr) {
      if (Status status = finish(piece); !status.ok()) return failed(std::move(status), piece);
      if (out) use_all(piece);
    }
    Status status = allot(piece, spans, next);
    if (!status.ok()) return {std::move(status), next.which, next.which};
    if (piece.parts.empty()) {  // all bytes are in pieces
      const auto idle = [](const Piece& one) { return one.event == nullptr; };
      if (std::all_of(std::begin(pieces_), std::end(pieces_), idle)) return {};
      continue;
    }
    if (!out) use_all(piece);
    Result<memory::DeviceEventPtr> event =
        out ? device_.copy_out(nullptr, piece.copies) : device_.copy_in(nullptr, piece.copies);
    if (!event.ok()) return failed(event.status(), piece);
    piece.event = std::move(event.value());
  }
}

// Gives the piece as many bytes of the spans as fit.
Status PinnedPieces::allot(Piece& piece, const Spans& spans, Position& next) {
  piece.parts.clear();
  piece.copies.clear();
  while (next.which < spans.size() && next.offset == spans[next.which]->size())
    next = {next.which + 1, 0};
  if (next.which == spans.size()) return {};
  if (piece.memory == nullptr) {
    size_t left = 0;
    for (size_t i = next.which; i < spans.size() && left < kPieceBytes; ++i)
      left += aligned(spans[i]->size() - (i == next.which ? next.offset : 0));
    Result<std::unique_ptr<memory::PinnedMemory>> memory =
        device_.pinned(std::min(left, kPieceBytes));
    if (!memory.ok()) return memory.status();
    piece.memory = std::move(memory.value());
  }
  const std::span<std::byte> whole = piece.memory->bytes();
  size_t used = 0;
  while (next.which < spans.size() && used < whole.size()) {
    const memory::DeviceBytes& span = *spans[next.which];
    const size_t left = span.size() - next.offset, room = whole.size() - used;
    const size_t bytes = left <= room ? left : room / kUnit * kUnit;
    if (left > 0 && bytes == 0) break;
    if (bytes > 0) {
      const std::span<std::byte> host = whole.subspan(used, bytes);
      piece.parts.push_back({next.which, next.offset, host});
      piece.copies.push_back({span.part(next.offset, bytes), host});
      used += aligned(bytes);
    }
    next.offset += bytes;
    if (next.offset == span.size()) next = {next.which + 1, 0};
  }
  PCCL_ASSERT(!piece.parts.empty());
  return {};
}

Status PinnedPieces::finish(Piece& piece) {
  Status status = wait_for(*piece.event, limit_);
  too_slow_ |= status.code == Code::kOperationTimeout;
  if (!too_slow_) piece.event.reset();
  return status;
}

}  // namespace pccl::peer
