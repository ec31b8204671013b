// PieceLayout: how the entries that a state sync moves are cut into pieces. A piece travels and is
// verified as a whole: it is a part of one large entry, or several whole entries in a row. All
// members compute the same layout from a SyncPlan. It is a plain value that never changes.
// Invariants:
//   1. The pieces cover each of the keys once, in their order.
//   2. A piece has at most piece_bytes() bytes, and there are at most kStatePiecesMax pieces.
//   3. A part begins at a multiple of piece_bytes() of its entry. So its hash is a sum of tiles.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"

namespace pccl::peer {

class PieceLayout {
 public:
  struct Segment {  // bytes of one entry
    uint32_t key = 0;
    uint64_t offset = 0, bytes = 0;
    bool operator==(const Segment&) const = default;
  };

  PieceLayout() = default;
  // `piece_bytes`: the maximum size of a piece; it is doubled until there are at most
  // kStatePiecesMax.
  // REQUIRES: ascending keys of the entries; piece_bytes is a multiple of a tile of the state hash.
  PieceLayout(const std::vector<protocol::StateEntry>& entries, const std::vector<uint32_t>& keys,
              uint64_t piece_bytes = protocol::kStateUnitBytes);

  uint32_t count() const { return static_cast<uint32_t>(pieces_.size()); }
  uint64_t piece_bytes() const { return piece_bytes_; }
  uint64_t bytes(uint32_t piece) const { return pieces_[piece].bytes; }
  uint64_t total_bytes() const;
  // The segments of a piece, one after another.
  std::vector<Segment> segments(uint32_t piece) const;
  // Parts have no hash of their own in the plan: the manifest has the sums of all parts, in order.
  bool is_part(uint32_t piece) const { return pieces_[piece].part != kNoPart; }
  uint32_t part_index(uint32_t piece) const { return pieces_[piece].part; }
  uint32_t part_count() const { return parts_; }
  // The pieces that have bytes of any of these keys. REQUIRES: ascending keys.
  std::vector<uint32_t> pieces_of(const std::vector<uint32_t>& keys) const;
  // The number of the piece that has this byte. REQUIRES: a key of the layout, an offset in it.
  uint32_t piece_at(uint32_t key, uint64_t offset) const;

 private:
  static constexpr uint32_t kNoPart = UINT32_MAX;
  struct Piece {
    size_t first = 0, end = 0;  // positions in keys_
    uint64_t offset = 0;        // of a part
    uint64_t bytes = 0;
    uint32_t part = kNoPart;
  };
  bool cut(uint64_t piece_bytes);

  std::vector<uint32_t> keys_;
  std::vector<uint64_t> key_bytes_;     // in the order of keys_
  std::vector<uint32_t> first_pieces_;  // in the order of keys_: the piece where the entry begins
  std::vector<Piece> pieces_;
  uint64_t piece_bytes_ = protocol::kStateUnitBytes;
  uint32_t parts_ = 0;
};

// Bytes of an entry. REQUIRES: they do not overflow.
uint64_t entry_bytes(const protocol::StateEntry& entry);

}  // namespace pccl::peer
