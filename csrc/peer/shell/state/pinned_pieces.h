// PinnedPieces: copies between memory of a device and ordinary memory of the host. The copies can
// be large. They pass through pinned memory, in two pieces of at most 32 MiB each: while the device
// copies one piece, the caller works on the other.
// It belongs to one thread. Its methods block this thread, for at most `limit` in each wait.
// Failure: a method returns the error of the device, or kOperationTimeout, and the spans that the
// error is about. A device that does not finish in time may still use the memory of its copies.
// That memory is then kept until the process ends.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/result.h"
#include "csrc/memory/device.h"

namespace pccl::peer {

// Waits for the device. kOperationTimeout after `limit`; kInvalidState if `interrupted`, which is
// asked every 100 ms and may be empty, returns true.
Status wait_for(memory::DeviceEvent& event, Duration limit,
                const std::function<bool()>& interrupted = {});

// Keeps `what` until the process ends: a device may still use it.
void keep_for_ever(std::shared_ptr<void> what);

class PinnedPieces {
 public:
  static constexpr size_t kPieces = 2;
  static constexpr size_t kPieceBytes = 32u << 20;

  using Spans = std::vector<memory::DeviceBytesPtr>;
  // Is called with `bytes` of the span `which`; `offset` is their position in the span. The calls
  // come in order, and each offset is a multiple of memory::StateHasher::kUnitBytes.
  using Use = std::function<void(size_t which, size_t offset, std::span<std::byte> bytes)>;
  struct Outcome {
    Status status;
    size_t first = 0, last = 0;  // of a failure: the first and the last span that it is about
  };

  PinnedPieces(memory::Device& device, Duration limit) : device_(device), limit_(limit) {}
  ~PinnedPieces();
  PinnedPieces(const PinnedPieces&) = delete;
  PinnedPieces& operator=(const PinnedPieces&) = delete;

  // Copies the spans to the host; `take` reads the bytes.
  Outcome out(const Spans& spans, const Use& take) { return run(spans, true, take); }
  // Copies the output of `fill` to the spans. REQUIRES: the last call has succeeded.
  Outcome in(const Spans& spans, const Use& fill) { return run(spans, false, fill); }

 private:
  struct Part {
    size_t which, offset;
    std::span<std::byte> bytes;
  };
  struct Piece {
    std::unique_ptr<memory::PinnedMemory> memory;
    std::vector<Part> parts;
    memory::DeviceCopies copies;
    memory::DeviceEventPtr event;  // reached when its copies have ended; null: no copy is under way
  };
  // The position in the spans where the next piece begins.
  struct Position {
    size_t which = 0, offset = 0;
  };
  Outcome run(const Spans& spans, bool out, const Use& use);
  Status allot(Piece& piece, const Spans& spans, Position& next);
  Status finish(Piece& piece);

  memory::Device& device_;
  const Duration limit_;
  Piece pieces_[kPieces];
  bool too_slow_ = false;  // the device did not finish within the limit
};

}  // namespace pccl::peer
