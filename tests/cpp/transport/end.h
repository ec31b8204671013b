// End: one end of a connection in the tests of transports. It records what arrives there, and what
// the transport reports. It is used only where it lives (Transport::on).
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/net/framing.h"
#include "tests/cpp/net/frames.h"

namespace pccl::transport {

using net::FrameHeader;

// Lent: memory that a test lends to a transport. A transport that touches it after take_back() gets
// SIGSEGV, or EFAULT from a system call.
class Lent {
 public:
  explicit Lent(size_t size)
      : bytes_(static_cast<std::byte*>(
                   mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
               size) {}
  // With the content of chunk `number`.
  Lent(uint64_t number, size_t size) : Lent(size) {
    const std::vector<std::byte> from = net::content(number, size);
    std::copy(from.begin(), from.end(), bytes_.begin());
  }
  ~Lent() { munmap(bytes_.data(), bytes_.size()); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  void take_back() { EXPECT_EQ(mprotect(bytes_.data(), bytes_.size(), PROT_NONE), 0); }

 private:
  const std::span<std::byte> bytes_;
};

struct End : net::FrameSink {
  struct Chunk {
    std::vector<std::byte> memory;  // the landing, unless `land` returned another one
    std::span<std::byte> landing;
    size_t landed = 0;
    std::optional<bool> valid;  // set at the end of the chunk
  };

  // ---- The transport calls these ----
  void on_frame(const FrameHeader& header) override {
    order.push_back(header.value);
    called();
  }
  std::span<std::byte> on_chunk(const FrameHeader& header) override {
    order.push_back(header.value);
    Chunk& chunk = chunks[header.value];
    if (land) {
      chunk.landing = land(header);
    } else {
      chunk.memory.assign(header.length, std::byte{0xee});
      chunk.landing = chunk.memory;
    }
    called();
    return chunk.landing;
  }
  void on_piece(size_t at, size_t bytes) override {
    Chunk& chunk = chunks[order.back()];
    EXPECT_EQ(at, chunk.landed);
    EXPECT_GT(bytes, 0u);
    chunk.landed = at + bytes;
    called();
  }
  void on_chunk_end(bool valid) override {
    Chunk& chunk = chunks[order.back()];
    EXPECT_EQ(chunk.landed, chunk.landing.size());
    EXPECT_EQ(chunk.valid, std::nullopt) << "a chunk ends once";
    chunk.valid = valid;
    called();
  }
  void sent() {
    ++sent_count;
    if (on_sent) on_sent();
    called();
  }
  void failed(Status why) {
    failures.push_back(std::move(why));
    called();
  }

  // ---- Queries ----
  bool began(uint64_t number) const { return chunks.contains(number); }
  std::optional<bool> valid(uint64_t number) const {
    const auto at = chunks.find(number);
    return at == chunks.end() ? std::nullopt : at->second.valid;
  }
  size_t landed(uint64_t number) const { return began(number) ? chunks.at(number).landed : 0; }
  // Whether chunk `number` came to its end, is valid, and has the content that belongs to it.
  bool right(uint64_t number) const {
    if (valid(number) != true) return false;
    const std::span<std::byte> landing = chunks.at(number).landing;
    return net::same(landing, net::content(number, landing.size()));
  }

  Status failure() const { return failures.empty() ? Status{} : failures.front(); }

  std::vector<uint64_t> order;  // `value` of the frames and chunks, as they came
  std::map<uint64_t, Chunk> chunks;
  int sent_count = 0;
  std::vector<Status> failures;
  int calls = 0;
  // The test sets these. The callbacks call them.
  std::function<std::span<std::byte>(const FrameHeader&)> land;
  std::function<void()> on_sent, on_any;

 private:
  void called() {
    ++calls;
    if (on_any) on_any();
  }
};

}  // namespace pccl::transport
