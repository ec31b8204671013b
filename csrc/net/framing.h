// framing: encodes and decodes the frames of a lane (PROTOCOL.md, section 6) piece by piece.
// FrameReader and FrameWriter belong to the code that moves the bytes, in pieces of any size: a TCP
// lane or the simulator. They are pure: they use no socket.
//   1. A frame is a 64-byte header. A chunk also has `length` bytes of payload and an 8-byte
//      trailer.
//   2. The payload of a chunk is not buffered. It is written from where it lies in memory, and read
//      directly into the landing that the sink returns. Only the payload bytes that were read
//      together with the header, at most 4 KiB, are copied to the landing: so a small chunk needs
//      one read.
// Failure: filled() returns kProtocol for a bad header (magic, checksum, type, reserved field,
// length) and for a bad chunk (checksum, trailer). The lane must then be closed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/ids.h"
#include "csrc/base/result.h"
#include "csrc/net/checksum.h"
#include "csrc/protocol/frames.h"
#include "csrc/protocol/limits.h"

namespace pccl::net {

using protocol::FrameHeader;
using protocol::FrameType;

// Convert a hello to a frame of `type`, and back. hello_in() returns nullopt if the frame is not a
// valid hello of `type`.
FrameHeader hello_frame(FrameType type, const protocol::LaneHello& hello);
std::optional<protocol::LaneHello> hello_in(FrameType type, const FrameHeader& header);

using HeaderBytes = std::array<std::byte, protocol::kFrameHeaderBytes>;
HeaderBytes encode_header(const FrameHeader& header);
Result<FrameHeader> decode_header(std::span<const std::byte, protocol::kFrameHeaderBytes> bytes);

// FrameSink: the receiver of the frames that a FrameReader decodes. All calls come from the thread
// that drives the reader. The methods of the sink may call the reader's revoke() and detach().
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // A frame that is not a chunk.
  virtual void on_frame(const FrameHeader& header) = 0;
  // The header of a chunk. Returns the landing for its payload, header.length bytes, or an empty
  // span to discard the payload. The reader uses the landing until on_chunk_end() or
  // FrameReader::revoke(). A chunk without payload has no landing, and no further call follows.
  virtual std::span<std::byte> on_chunk(const FrameHeader& header) = 0;
  // `bytes` more bytes are in the landing; `at` is their offset. Not called for discarded payload.
  virtual void on_piece(size_t at, size_t bytes) = 0;
  // The chunk is complete. `valid` is false if its sender marked it void. Not called for discarded
  // or revoked chunks.
  virtual void on_chunk_end(bool valid) = 0;
};

class FrameReader {
 public:
  // `checked`: payloads carry a checksum that must match. Both ends agree on it when the lane
  // opens.
  explicit FrameReader(FrameSink& sink, bool checked = false);
  // Applies from the next chunk on.
  void set_checked(bool checked) { checked_ = checked; }

  // The memory for the next bytes; never empty. Read at most as many bytes as it holds, then pass
  // their number to filled().
  std::span<std::byte> space();
  Status filled(size_t bytes);
  // Copies bytes that lie outside of space() to their places. The sink learns about the bytes of an
  // incomplete payload at the next report(), so that one piece may consist of many such spans.
  Status take(std::span<const std::byte> bytes);
  void report();

  // Stops using the landing of the current chunk, if there is one. The rest of the payload is
  // discarded.
  void revoke();
  // Stops using the sink and the landing for good. Call it before their owner is destroyed.
  void detach();
  // The number of bytes that are certain to arrive before the current frame ends. Between two
  // frames: before the next frame ends. The number is at least 1. It is for SO_RCVLOWAT.
  size_t certain() const;

 private:
  enum class Expects { kHeader, kPayload, kTrailer };
  // The size of the buffer for headers, trailers and the bytes that follow them.
  static constexpr size_t kBufferBytes = 4096;

  void parse_buffer();
  void parse_header(std::span<const std::byte, protocol::kFrameHeaderBytes> bytes);
  void parse_trailer(std::span<const std::byte, protocol::kFrameTrailerBytes> bytes);
  void payload_arrived(size_t bytes);
  void payload_copied(size_t bytes);
  size_t payload_rest() const {
    PCCL_DCHECK(at_ <= length_);
    return length_ - at_;
  }

  FrameSink* sink_;  // null once detached
  bool checked_;
  Expects expects_ = Expects::kHeader;
  std::array<std::byte, kBufferBytes> buffer_;
  size_t buffered_ = 0;  // bytes in buffer_ that are not parsed yet
  Status refused_;

  // The current chunk.
  std::span<std::byte> landing_;  // empty: its payload is discarded
  size_t length_ = 0;
  size_t at_ = 0;        // bytes of the payload that have arrived
  size_t reported_ = 0;  // bytes of the payload that report() has passed to the sink
  bool verify_ = false;
  Checksum sum_;
  std::vector<std::byte> discarded_;  // memory for discarded payload; allocated at first use
};

class FrameWriter {
 public:
  explicit FrameWriter(bool checked = false);
  // Applies from the next chunk on.
  void set_checked(bool checked) { checked_ = checked; }

  // Queues a frame without payload. Queued frames are written before the next chunk starts.
  void push(const FrameHeader& header);
  // Queues a chunk in the same way, with a copy of its payload.
  void push_copy(const FrameHeader& header, std::span<const std::byte> payload);
  // Starts a chunk. The writer uses `payload` until chunk_pending() is false again.
  // REQUIRES: !chunk_pending().
  void push_chunk(const FrameHeader& header, std::span<const std::byte> payload);
  bool chunk_pending() const { return chunk_.active; }
  // Stops using the payload of the pending chunk; the next chunk may be pushed at once. If no byte
  // of the chunk was written, the chunk is dropped. Otherwise the writer completes it with filler
  // and marks it void, unless a part of its trailer was written.
  void withdraw();

  // The bytes to write next, as at most four spans; if there is no span, there is nothing to write.
  // The spans are valid until the next call of any method. After the write, pass the number of
  // written bytes to wrote(). push() may be called between wrote() and the next gather().
  std::span<const std::span<const std::byte>> gather();
  // REQUIRES: no other call since gather(), and at most as many bytes as its spans hold.
  void wrote(size_t bytes);

  // Bytes of queued frames that are not written yet.
  size_t queued_bytes() const {
    PCCL_DCHECK(control_at_ <= control_.size());
    return control_.size() - control_at_;
  }

 private:
  using Trailer = std::array<std::byte, protocol::kFrameTrailerBytes>;
  struct Chunk {
    bool active = false;
    bool checked = false;
    HeaderBytes header;
    std::span<const std::byte> payload;  // empty although length > 0: withdrawn, send filler
    size_t length = 0;
    Trailer trailer;
    size_t at = 0;      // bytes written of header, payload and trailer together
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
  Chunk chunk_;  // the pending chunk
  Chunk cut_;    // a withdrawn chunk, partly written: the rest must follow
  Checksum sum_;
  std::array<std::span<const std::byte>, 4> spans_;  // the result of gather()
  std::array<size_t*, 4> progress_;                  // the position that each span advances
  size_t span_count_ = 0;
};

}  // namespace pccl::net
