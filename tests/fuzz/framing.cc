// Fuzzes the frames of lanes. The reader gets any bytes, then frames that a writer made from the
// input, in pieces of any size. Landings are revoked, chunks withdrawn and readers detached at any
// time.
#include "csrc/net/framing.h"

#include <algorithm>
#include <cstring>

#include "tests/fuzz/fuzz.h"

namespace pccl::fuzz {
namespace {

using net::FrameHeader;

// Gives landings of exactly the right size, so that a sanitizer sees a single byte too many.
class Sink : public net::FrameSink {
 public:
  explicit Sink(Chance& chance) : chance_(chance) {}
  net::FrameReader* reader = nullptr;

  void on_frame(const FrameHeader& header) override {
    require(header.type != net::FrameType::kChunk, "a chunk is told apart");
    ++frames;
  }
  std::span<std::byte> on_chunk(const FrameHeader& header) override {
    if (header.length == 0 || chance_.once_in(4)) return {};
    landing_.assign(header.length, std::byte{});
    landing_.shrink_to_fit();
    landed_ = 0;
    return landing_;
  }
  void on_piece(size_t at, size_t bytes) override {
    require(at == landed_, "pieces come in order");
    landed_ += bytes;
    require(landed_ <= landing_.size(), "and are not more than the chunk");
    if (chance_.once_in(30)) give_up();
  }
  void on_chunk_end(bool) override {
    require(landed_ == landing_.size(), "a chunk ends when all of it has landed");
    landing_.clear();
  }
  void give_up() {
    reader->revoke();
    landing_ = {};  // a later write is a use after free
  }
  size_t frames = 0;

 private:
  Chance& chance_;
  std::vector<std::byte> landing_;
  size_t landed_ = 0;
};

// Returns false once the reader refuses.
bool feed(net::FrameReader& reader, std::span<const std::byte> bytes, Chance& chance) {
  while (!bytes.empty()) {
    require(reader.certain() >= 1, "more is to come");
    const std::span<std::byte> space = reader.space();
    require(!space.empty(), "there is always room");
    const size_t piece = std::min({space.size(), bytes.size(), 1 + chance.below(700)});
    std::memcpy(space.data(), bytes.data(), piece);
    if (!reader.filled(piece).ok()) return false;
    bytes = bytes.subspan(piece);
  }
  return true;
}

FrameHeader some_header(Chance& chance) {
  FrameHeader header;
  header.type = static_cast<net::FrameType>(1 + chance.below(11));
  if (header.type == net::FrameType::kChunk) header.type = net::FrameType::kPing;
  header.epoch = Epoch{chance.below(4)};
  header.value = chance();
  return header;
}

void written_and_read(Chance& chance) {
  Sink sink(chance);
  net::FrameReader reader(sink, true);
  net::FrameWriter writer(true);
  sink.reader = &reader;
  std::vector<std::byte> payload;
  while (!chance.over()) {
    switch (chance.below(6)) {
      case 0:
        if (writer.chunk_pending()) break;
        payload.assign(chance.below(3000), std::byte{7});
        {
          FrameHeader header;
          header.type = net::FrameType::kChunk;
          header.length = static_cast<uint32_t>(payload.size());
          writer.push_chunk(header, payload);
        }
        break;
      case 1: writer.push(some_header(chance)); break;
      case 2:
        writer.withdraw();
        payload = {};
        break;
      case 3: {
        FrameHeader header;
        header.type = net::FrameType::kChunk;
        const std::vector<std::byte> copied(chance.below(200));
        header.length = static_cast<uint32_t>(copied.size());
        writer.push_copy(header, copied);
        break;
      }
      default: {
        size_t left = 1 + chance.below(2000), wrote = 0;
        std::vector<std::byte> bytes;
        for (const auto& span : writer.gather()) {
          const auto part = span.first(std::min(left, span.size()));
          bytes.insert(bytes.end(), part.begin(), part.end());
          left -= part.size();
          wrote += part.size();
        }
        writer.wrote(wrote);
        require(feed(reader, bytes, chance), "what a writer has made is right");
      }
    }
  }
}

}  // namespace
}  // namespace pccl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pccl;
  Chance chance(std::span(data, size));
  {
    fuzz::Sink sink(chance);
    net::FrameReader reader(sink, true);
    sink.reader = &reader;
    fuzz::feed(reader, fuzz::as_bytes(data, size), chance);
    reader.detach();
  }
  {
    // Any header with the right checksum, followed by any bytes.
    fuzz::Sink sink(chance);
    net::FrameReader reader(sink, true);
    sink.reader = &reader;
    for (size_t at = 0; at + protocol::kFrameHeaderBytes <= size;) {
      net::FrameHeader header;
      header.type = static_cast<net::FrameType>(1 + data[at] % 9);
      const bool chunk = header.type == net::FrameType::kChunk;
      header.length = chunk ? data[at + 1] * 16u : 0;
      const auto bytes = net::encode_header(header);
      if (!fuzz::feed(reader, bytes, chance)) break;
      const size_t more = std::min<size_t>(data[at + 2] * 16u, size - at);
      if (!fuzz::feed(reader, fuzz::as_bytes(data + at, chunk ? more : 0), chance)) break;
      at += protocol::kFrameHeaderBytes;
    }
  }
  Chance again(std::span(data, size));
  fuzz::written_and_read(again);
  return 0;
}
