// RecordCutter: cuts plaintext that lies in several spans into pieces of one TLS record each.
// Bytes of several spans are copied together, so that a frame header and the payload after it share
// a record. A long span is not copied. A RecordCutter belongs to one call of Tls::write().
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace pccl::net {

class RecordCutter {
 public:
  static constexpr size_t kPieceBytesMax = 16384;
  explicit RecordCutter(std::span<const std::span<const std::byte>> spans) : spans_(spans) {
    skip_empty();
  }
  bool empty() const { return spans_.empty(); }

  // Returns the next piece, which is as long as possible; empty: nothing is left. It is valid until
  // the next call.
  std::span<const std::byte> next();
  // The number of pieces of kPieceBytesMax bytes that lie next to each other at the front. They may
  // be taken together, by next_pieces(): a view of the spans, which stays valid.
  size_t pieces() const;
  std::span<const std::byte> next_pieces(size_t count);  // REQUIRES: count <= pieces()

 private:
  std::span<const std::byte> part(size_t bytes_max);
  void skip_empty();

  std::span<const std::span<const std::byte>> spans_;
  size_t at_ = 0;  // number of bytes taken from the first of spans_
  std::array<std::byte, kPieceBytesMax> together_;
};

}  // namespace pccl::net
