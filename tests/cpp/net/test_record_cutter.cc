#include "csrc/net/record_cutter.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace pccl::net {
namespace {

constexpr size_t kMax = RecordCutter::kPieceBytesMax;

std::vector<std::span<const std::byte>> spans_of(const std::vector<std::string>& texts) {
  std::vector<std::span<const std::byte>> spans;
  for (const std::string& text : texts) spans.push_back(std::as_bytes(std::span(text)));
  return spans;
}

std::vector<std::string> pieces_of(const std::vector<std::string>& texts) {
  const auto spans = spans_of(texts);
  RecordCutter cutter(spans);
  std::vector<std::string> pieces;
  for (auto piece = cutter.next(); !piece.empty(); piece = cutter.next()) {
    pieces.emplace_back(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  EXPECT_TRUE(cutter.next().empty());
  return pieces;
}

TEST(RecordCutter, JoinsSmallSpans) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(pieces_of({}), Texts{});
  EXPECT_EQ(pieces_of({"", "", ""}), Texts{});
  EXPECT_EQ(pieces_of({"", "header", "", "payload", ""}), Texts{"headerpayload"});
}

TEST(RecordCutter, FillsEachPieceButTheLast) {
  std::mt19937_64 random{1};
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> texts(random() % 5);
    std::string all;
    for (std::string& text : texts) {
      text.assign(random() % 3 == 0 ? random() % 100 : random() % (3 * kMax), '\0');
      for (char& c : text) c = static_cast<char>(random());
      all += text;
    }
    std::string together;
    const auto pieces = pieces_of(texts);
    EXPECT_EQ(pieces.size(), (all.size() + kMax - 1) / kMax);
    for (const std::string& piece : pieces) {
      together += piece;
      EXPECT_TRUE(piece.size() == kMax || together.size() == all.size());
    }
    EXPECT_TRUE(together == all);
  }
}

TEST(RecordCutter, GivesSeveralPiecesOfALongSpan) {
  const std::vector<std::string> texts{"header", std::string(4 * kMax, 'p'), "end"};
  const auto spans = spans_of(texts);
  RecordCutter cutter(spans);
  EXPECT_EQ(cutter.pieces(), 0u);
  EXPECT_EQ(cutter.next().size(), kMax);  // the header, and the start of the long span
  ASSERT_EQ(cutter.pieces(), 3u);
  const auto pieces = cutter.next_pieces(2);
  EXPECT_EQ(pieces.data(), spans[1].data() + kMax - 6);
  EXPECT_EQ(pieces.size(), 2 * kMax);
  EXPECT_EQ(cutter.pieces(), 1u);
  EXPECT_EQ(cutter.next_pieces(1).size(), kMax);
  EXPECT_EQ(cutter.next().size(), 6u + 3u);
  EXPECT_EQ(cutter.pieces(), 0u);
}

TEST(RecordCutter, DoesNotCopyLongSpans) {
  const std::vector<std::string> texts{std::string(64, 'h'), std::string(3 * kMax, 'p')};
  const auto spans = spans_of(texts);
  RecordCutter cutter(spans);
  cutter.next();
  EXPECT_EQ(cutter.next().data(), spans[1].data() + kMax - 64);
  EXPECT_EQ(cutter.next().data(), spans[1].data() + 2 * kMax - 64);
  EXPECT_EQ(cutter.next().data(), spans[1].data() + 3 * kMax - 64);  // the last span, to its end
  EXPECT_TRUE(cutter.next().empty());
}

}  // namespace
}  // namespace pccl::net
