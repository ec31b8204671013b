// framing: the frames of a lane (PROTOCOL.md, section 6), incremental and pure: no socket here.
// FrameReader and FrameWriter are driven by whoever moves the bytes, a TCP lane or the simulator,
// in pieces of any size. A frame is a 64-byte header; a chunk also has `length` bytes of payload
// and an 8-byte trailer. The payload is not buffered: it is written straight from where it lies and
// read straight to where the sink says (but for its first few KiB, which came along with its header
// and are copied there: a small chunk is one read). Failure: a header that makes no sense (magic,
// checksum, type, length over the limit), a chunk whose checksum is wrong: filled() says so, and
// the lane must be closed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/base/status.h"
#include "csrc/net/checksum.h"
#include "csrc/protocol/frames.h"
#include "csrc/protocol/limits.h"

namespace pccl::net {

enum class FrameType : uint8_t {
  kHello = 1,    // dialler, first: epoch = run id, op.tag = my PeerId, digest = yours, value =
                 // machine, slice and op.sequence = lowest and highest version (for ever there),
                 // block = serial of the link, round = 1: a further lane
  kHelloOk = 2,  // acceptor's answer, same fields from its side
  kOpen = 3,     // I have heard of `epoch`: frames of older ones are void from here on
  kCredit =
      4,       // op, digest: `value` is the number of steps I have room for, counted from the start
  kChunk = 5,  // op, digest, round, block, slice, length, and the payload
  kPing = 6,
  kPong = 7,
  kWindow = 8,  // epoch: `value` bytes of copies were taken; round: those that I had asked for
  kDone = 9,    // op, digest: it is done here, as I have told the master
};

struct FrameHeader {
  FrameType type = FrameType::kPing;
  uint16_t round = 0;
  uint32_t block = 0;
  Epoch epoch;
  OpKey op;
  uint64_t digest = 0;
  uint32_t slice = 0;
  uint32_t length = 0;  // payload bytes; 0 unless kChunk
  uint64_t value = 0;
  bool operator==(const FrameHeader&) const = default;
};

// The hello as a frame of this type, and back; nothing if it is no hello of this type.
FrameHeader hello_frame(FrameType type, const protocol::LaneHello& hello);
std::optional<protocol::LaneHello> hello_in(FrameType type, const FrameHeader& header);

using HeaderBytes = std::array<std::byte, protocol::kFrameHeaderBytes>;
HeaderBytes encode_header(const FrameHeader& header);
Result<FrameHeader> decode_header(std::span<const std::byte, protocol::kFrameHeaderBytes> bytes);

// What a reader tells whom it reads for. Calls come from the thread that drives the reader, and may
// call the reader's revoke() and detach().
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Any frame but a chunk.
  virtual void on_frame(const FrameHeader& header) = 0;
  // A chunk's header: returns where its payload lands, header.length bytes; an empty span discards
  // it. The span stays lent until on_chunk_end or FrameReader::revoke(). A chunk of no bytes has
  // nothing to land: this call is all there is of it.
  virtual std::span<std::byte> on_chunk(const FrameHeader& header) = 0;
  // `bytes` more have landed, the first of them at `at`. Not called for discarded payload.
  virtual void on_piece(size_t at, size_t bytes) = 0;
  // The chunk is complete. `valid` is false when its sender marked it void. Not called for
  // discarded or revoked chunks.
  virtual void on_chunk_end(bool valid) = 0;
};

class FrameReader {
 public:
  // `checked`: payloads carry a checksum that must match (both ends agree on it when the lane
  // opens).
  explicit FrameReader(FrameSink& sink, bool checked = false);
  // From the next chunk on.
  void set_checked(bool checked) { checked_ = checked; }

  // Where the next bytes belong; never empty. Read at most that many, then say how many came.
  std::span<std::byte> space();
  Status filled(size_t bytes);

  // The landing of the chunk under way, if any, is not touched again; its rest is discarded.
  void revoke();
  // The sink is not called again, the landing not touched again: whoever owns them is about to go.
  void detach();
  // How many bytes will surely come before the next frame ends (for SO_RCVLOWAT): at least 1.
  size_t certain() const;

 private:
  enum class Expects { kHeader, kPayload, kTrailer };
  // Headers and trailers arrive here, with whatever follows them.
  static constexpr size_t kBufferBytes = 4096;

  void parse_buffer();
  void parse_header(std::span<const std::byte, protocol::kFrameHeaderBytes> bytes);
  void parse_trailer(std::span<const std::byte, protocol::kFrameTrailerBytes> bytes);
  void payload_arrived(size_t bytes);
  size_t payload_rest() const { return length_ - at_; }

  FrameSink* sink_;  // null once detached
  bool checked_;
  Expects expects_ = Expects::kHeader;
  std::array<std::byte, kBufferBytes> buffer_;
  size_t buffered_ = 0;  // bytes of buffer_ that are there and not understood yet
  Status refused_;

  // The chunk under way.
  std::span<std::byte> landing_;  // empty: its payload is discarded
  size_t length_ = 0;
  size_t at_ = 0;
  bool verify_ = false;
  Checksum sum_;
  std::vector<std::byte> discarded_;  // allocated when first needed
};

class FrameWriter {
 public:
  explicit FrameWriter(bool checked = false);
  // From the next chunk on.
  void set_checked(bool checked) { checked_ = checked; }

  // Queues a frame without payload; such frames go out before the next chunk starts.
  void push(const FrameHeader& header);
  // Queues a chunk likewise, with a copy of its payload.
  void push_copy(const FrameHeader& header, std::span<const std::byte> payload);
  // Starts a chunk. REQUIRES: !chunk_pending(). `payload` stays lent until chunk_pending() is false
  // again.
  void push_chunk(const FrameHeader& header, std::span<const std::byte> payload);
  bool chunk_pending() const { return chunk_.active; }
  // The payload of the pending chunk is not touched again, and the next chunk may be pushed at
  // once. A chunk that has not begun to leave is dropped, one cut in the middle is first completed
  // with filler and marked void.
  void withdraw();

  // What to write next, as at most four spans (empty: nothing to do), then how much of it was
  // written. Calls may alternate with push(); spans are valid until the next call of any method.
  std::span<const std::span<const std::byte>> gather();
  // REQUIRES: no other call since gather(), and at most as many bytes as it showed.
  void wrote(size_t bytes);

  // Bytes of queued frames that wait to leave.
  size_t queued_bytes() const { return control_.size() - control_at_; }

 private:
  using Trailer = std::array<std::byte, protocol::kFrameTrailerBytes>;
  struct Chunk {
    bool active = false;
    bool checked = false;
    HeaderBytes header;
    std::span<const std::byte> payload;  // empty with a length: withdrawn, filler leaves instead
    size_t length = 0;
    Trailer trailer;
    size_t at = 0;      // of header, payload and trailer together
    size_t summed = 0;  // bytes of the payload that are in the checksum
    size_t total() const { return header.size() + length + trailer.size(); }
  };
  void plan(std::span<const std::byte> bytes, size_t* progress);
  void plan_control();
  void forget_what_has_left();
  bool plan_chunk(Chunk& chunk);
  size_t sum_ahead(Chunk& chunk, size_t payload_at);

  bool checked_;
  std::vector<std::byte> control_;
  size_t control_at_ = 0;
  Chunk chunk_;  // the pending one
  Chunk cut_;    // a withdrawn one whose rest must still leave
  Checksum sum_;
  std::array<std::span<const std::byte>, 4> spans_;  // what gather() showed,
  std::array<size_t*, 4> progress_;                  // and whose progress each is
  size_t span_count_ = 0;
};

}  // namespace pccl::net
