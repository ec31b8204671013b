#include "csrc/peer/state/piece_layout.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::peer {

uint64_t entry_bytes(const protocol::StateEntry& entry) {
  uint64_t bytes = element_bytes(entry.dtype);
  for (const int64_t size : entry.shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

PieceLayout::PieceLayout(const std::vector<protocol::StateEntry>& entries,
                         const std::vector<uint32_t>& keys, uint64_t piece_bytes)
    : keys_(keys) {
  PCCL_ASSERT(std::is_sorted(keys.begin(), keys.end()));
  for (const uint32_t key : keys) key_bytes_.push_back(entry_bytes(entries[key]));
  while (!cut(piece_bytes)) piece_bytes *= 2;
}

// False if there are too many pieces.
bool PieceLayout::cut(uint64_t piece_bytes) {
  piece_bytes_ = piece_bytes;
  pieces_.clear();
  first_pieces_.clear();
  parts_ = 0;
  bool open = false;  // further entries may be added to the last piece
  for (size_t at = 0; at < keys_.size(); ++at) {
    const uint64_t bytes = key_bytes_[at];
    if ((bytes + piece_bytes - 1) / piece_bytes > protocol::kStatePiecesMax) return false;
    if (bytes > piece_bytes) {
      first_pieces_.push_back(count());
      for (uint64_t offset = 0; offset < bytes; offset += piece_bytes)
        pieces_.push_back({at, at + 1, offset, std::min(piece_bytes, bytes - offset), parts_++});
      open = false;
    } else if (open && pieces_.back().bytes + bytes <= piece_bytes) {
      first_pieces_.push_back(count() - 1);
      pieces_.back().end = at + 1;
      pieces_.back().bytes += bytes;
    } else {
      first_pieces_.push_back(count());
      pieces_.push_back({at, at + 1, 0, bytes, kNoPart});
      open = true;
    }
    if (pieces_.size() > protocol::kStatePiecesMax) return false;
  }
  return true;
}

uint64_t PieceLayout::total_bytes() const {
  uint64_t sum = 0;
  for (const Piece& piece : pieces_) sum += piece.bytes;
  return sum;
}

std::vector<PieceLayout::Segment> PieceLayout::segments(uint32_t piece) const {
  const Piece& of = pieces_[piece];
  if (is_part(piece)) return {{keys_[of.first], of.offset, of.bytes}};
  std::vector<Segment> segments;
  for (size_t at = of.first; at < of.end; ++at) segments.push_back({keys_[at], 0, key_bytes_[at]});
  return segments;
}

uint32_t PieceLayout::piece_at(uint32_t key, uint64_t offset) const {
  const auto at = std::lower_bound(keys_.begin(), keys_.end(), key);
  PCCL_ASSERT(at != keys_.end() && *at == key);
  const uint32_t first = first_pieces_[static_cast<size_t>(at - keys_.begin())];
  return first + static_cast<uint32_t>(offset / piece_bytes_);
}

std::vector<uint32_t> PieceLayout::pieces_of(const std::vector<uint32_t>& keys) const {
  PCCL_ASSERT(std::is_sorted(keys.begin(), keys.end()));
  std::vector<uint32_t> pieces;
  size_t at = 0;
  for (const uint32_t key : keys) {
    while (at < keys_.size() && keys_[at] < key) ++at;
    if (at == keys_.size() || keys_[at] != key) continue;
    const uint64_t bytes = key_bytes_[at];
    const uint32_t first = first_pieces_[at];
    const uint32_t last = first + static_cast<uint32_t>((bytes > 0 ? bytes - 1 : 0) / piece_bytes_);
    for (uint32_t piece = first; piece <= last; ++piece) {
      if (pieces.empty() || pieces.back() < piece) pieces.push_back(piece);
    }
  }
  return pieces;
}

}  // namespace pccl::peer
