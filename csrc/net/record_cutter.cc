#include "csrc/net/record_cutter.h"

#include <algorithm>
#include <cstring>

#include "csrc/base/assert.h"

namespace pccl::net {

std::span<const std::byte> RecordCutter::next() {
  std::span<const std::byte> piece = part(kPieceBytesMax);
  if (piece.size() == kPieceBytesMax || spans_.empty()) return piece;
  size_t size = 0;
  for (; !piece.empty(); piece = part(kPieceBytesMax - size)) {
    std::memcpy(together_.data() + size, piece.data(), piece.size());
    size += piece.size();
  }
  return std::span(together_).first(size);
}

size_t RecordCutter::pieces() const {
  return spans_.empty() ? 0 : (spans_.front().size() - at_) / kPieceBytesMax;
}

std::span<const std::byte> RecordCutter::next_pieces(size_t count) {
  PCCL_ASSERT(count <= pieces());
  return part(count * kPieceBytesMax);
}

// Returns at most `bytes_max` bytes of one span. Afterwards no empty span is at the front.
std::span<const std::byte> RecordCutter::part(size_t bytes_max) {
  skip_empty();
  if (spans_.empty()) return {};
  const auto rest = spans_.front().subspan(at_);
  const auto piece = rest.first(std::min(bytes_max, rest.size()));
  at_ += piece.size();
  skip_empty();
  return piece;
}

void RecordCutter::skip_empty() {
  for (; !spans_.empty() && at_ == spans_.front().size(); at_ = 0) spans_ = spans_.subspan(1);
}

}  // namespace pccl::net
