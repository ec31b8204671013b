#include "csrc/net/record_cutter.h"

#include <algorithm>

namespace pccl::net {

std::span<const std::byte> RecordCutter::next() {
  std::span<const std::byte> piece = part(kPieceBytesMax);
  if (piece.size() == kPieceBytesMax || spans_.empty()) return piece;
  size_t size = 0;
  for (; !piece.empty(); piece = part(kPieceBytesMax - size)) {
    std::ranges::copy(piece, together_.begin() + static_cast<std::ptrdiff_t>(size));
    size += piece.size();
  }
  return std::span(together_).first(size);
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
