#include "csrc/peer/shell/state/pinned_pieces.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/cpp/peer/shell/device_memory.h"

namespace pccl::peer {
namespace {

constexpr size_t kPiece = PinnedPieces::kPieceBytes;
constexpr size_t kUnit = memory::StateHasher::kUnitBytes;
constexpr Duration kLimit = std::chrono::seconds(20);

class PinnedPiecesTest : public testing::Test {
 protected:
  void add(size_t size) {
    std::vector<std::byte> content(size);
    for (size_t at = 0; at < size; at += 97) content[at] = static_cast<std::byte>(random());
    if (size > 0) content.back() = std::byte{1};
    vectors.push_back(std::make_shared<DeviceVector>(std::move(content)));
    spans.push_back(vectors.back());
  }
  void add_all(std::initializer_list<size_t> sizes) {
    for (const size_t size : sizes) add(size);
  }

  memory::FakeDevice device{{.seed = 5, .delay_max = 3}, move};
  std::mt19937_64 random{5};
  std::vector<std::shared_ptr<DeviceVector>> vectors;
  PinnedPieces::Spans spans;
};

TEST_F(PinnedPiecesTest, CopiesOutInOrderAndInWholeUnits) {
  add_all({0, 5, kPiece + 1, 0, 3 * kPiece / 2, kUnit, 1, 2 * kPiece, 0});
  std::vector<std::vector<std::byte>> found(spans.size());
  size_t last = 0;
  PinnedPieces pieces(device, kLimit);
  const auto take = [&](size_t which, size_t offset, std::span<std::byte> bytes) {
    EXPECT_GE(which, last);
    last = which;
    EXPECT_EQ(offset, found[which].size());
    EXPECT_EQ(offset % kUnit, 0u);
    found[which].insert(found[which].end(), bytes.begin(), bytes.end());
  };
  EXPECT_EQ(pieces.out(spans, take).status, Status{});
  for (size_t i = 0; i < spans.size(); ++i) EXPECT_TRUE(found[i] == vectors[i]->bytes) << i;
  EXPECT_EQ(device.pinned_bytes_max(), PinnedPieces::kPieces * kPiece);
}

TEST_F(PinnedPiecesTest, CopiesIn) {
  add_all({7, kPiece + 3 * kUnit + 1, kPiece - 5});
  PinnedPieces pieces(device, kLimit);
  const auto fill = [](size_t which, size_t, std::span<std::byte> bytes) {
    std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(which + 1));
  };
  EXPECT_EQ(pieces.in(spans, fill).status, Status{});
  for (size_t i = 0; i < spans.size(); ++i) {
    const std::vector<std::byte> expected(spans[i]->size(), static_cast<std::byte>(i + 1));
    EXPECT_TRUE(vectors[i]->bytes == expected) << i;
  }
}

TEST_F(PinnedPiecesTest, SmallSpansShareAPieceOfTheirSize) {
  for (int i = 0; i < 100; ++i) add(10);
  int calls = 0;
  PinnedPieces pieces(device, kLimit);
  EXPECT_EQ(pieces.out(spans, [&](size_t, size_t, std::span<std::byte>) { ++calls; }).status,
            Status{});
  EXPECT_EQ(calls, 100);
  EXPECT_EQ(device.pinned_bytes_max(), 100u * 64);
}

TEST_F(PinnedPiecesTest, AFailureNamesItsSpans) {
  add_all({10, 20, kPiece});
  device.set({.seed = 1, .fails_one_in = 1});
  PinnedPieces pieces(device, kLimit);
  const auto outcome = pieces.out(spans, [](size_t, size_t, std::span<std::byte>) { FAIL(); });
  EXPECT_EQ(outcome.status.code, Code::kSystem);
  EXPECT_EQ(outcome.first, 0u);
  EXPECT_EQ(outcome.last, 2u);
}

TEST_F(PinnedPiecesTest, NoPinnedMemoryNamesItsSpan) {
  add_all({0, 10});
  device.set({.pinned_max = 5});
  PinnedPieces pieces(device, kLimit);
  const auto outcome = pieces.out(spans, [](size_t, size_t, std::span<std::byte>) { FAIL(); });
  EXPECT_EQ(outcome.status.message, "no pinned memory of 64 bytes is left");
  EXPECT_EQ(outcome.first, 1u);
}

// The memory must outlive the copies, which the device makes at some later time.
TEST_F(PinnedPiecesTest, ADeviceThatDoesNotFinishKeepsTheMemory) {
  add(100);
  device.set({.stuck = true});
  {
    PinnedPieces pieces(device, std::chrono::milliseconds(1));
    const auto outcome = pieces.out(spans, [](size_t, size_t, std::span<std::byte>) { FAIL(); });
    EXPECT_EQ(outcome.status.code, Code::kOperationTimeout);
  }
  EXPECT_EQ(device.pinned_bytes(), 128u);
  EXPECT_EQ(device.copies_under_way(), 1u);
}

TEST_F(PinnedPiecesTest, AWaitIsGivenUpIfItIsInterrupted) {
  device.set({.stuck = true});
  const memory::DeviceEventPtr mark = device.mark().value();
  EXPECT_EQ(wait_for(*mark, kLimit, [] { return true; }).code, Code::kInvalidState);
  EXPECT_EQ(wait_for(*mark, std::chrono::milliseconds(1)).message,
            "the device has not finished within 1 ms");
  device.set({});
  EXPECT_EQ(wait_for(*mark, kLimit, [] { return true; }), Status{});
}

}  // namespace
}  // namespace pccl::peer
