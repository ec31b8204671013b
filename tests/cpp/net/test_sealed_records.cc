#include "csrc/net/sealed_records.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <string>

#include "tests/cpp/net/tls_forge.h"

namespace pccl::net {
namespace {

constexpr auto kSuite = RecordCipher::Suite::kAes128Gcm;

// One end; `own` and `others`: numbers of the secrets with which it and the other end seal.
struct SealedEnd {
  SealedEnd(uint8_t own, uint8_t others) {
    EXPECT_TRUE(records.begin_sending(kSuite, key_of(own)));
    EXPECT_TRUE(records.begin_receiving(kSuite, key_of(others)));
  }
  void write(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    EXPECT_EQ(records.write(std::span(&bytes, 1)).value(), text.size());
  }
  Bytes take_outgoing() {
    const Bytes bytes(queue.bytes().begin(), queue.bytes().end());
    queue.drop(bytes.size());
    return bytes;
  }
  // The data in these bytes; ends with the failure, if there is one.
  std::string read(Bytes bytes, size_t piece_max = SIZE_MAX) {
    std::string text;
    for (std::span<std::byte> rest = bytes; !rest.empty();) {
      std::span<std::byte> piece = rest.first(std::min(piece_max, rest.size()));
      rest = rest.subspan(piece.size());
      for (;;) {
        auto data = records.read(piece);
        if (!data.ok()) return text + data.status().message;
        if (data.value().empty()) break;
        text += text_of(data.value());
      }
    }
    return text;
  }

  ByteQueue queue;
  HelperThreads helpers{2};
  SealedRecords records{queue};
};

struct SealedEnds {
  SealedEnd a{1, 2}, b{2, 1};
};

std::string text_of_size(size_t size) {
  std::string text(size, ' ');
  std::mt19937_64 random{size};
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST(SealedRecords, PiecesOfAnySizeGiveTheSameData) {
  const std::string text = text_of_size(50'000);
  for (const size_t piece : {1u, 4u, 5u, 6u, 16'406u, 16'407u, 60'000u}) {
    SealedEnds ends;
    ends.a.write(text);
    EXPECT_TRUE(ends.b.read(ends.a.take_outgoing(), piece) == text) << piece;
  }
}

TEST(SealedRecords, DataLieInTheReceivedBytes) {
  SealedEnds ends;
  ends.a.write("data");
  Bytes bytes = ends.a.take_outgoing();
  std::span<std::byte> rest = bytes;
  const auto data = ends.b.records.read(rest);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data.value().data(), bytes.data() + RecordCipher::kHeaderBytes);
}

TEST(SealedRecords, BothEndsReplaceTheirKeysAtTheSameTime) {
  SealedEnds ends;
  ends.a.records.replace_key_after(3);
  ends.b.records.replace_key_after(2);
  std::string at_a, at_b;
  for (int i = 0; i < 50; ++i) {
    ends.a.write("x");
    ends.b.write("y");
    const Bytes from_a = ends.a.take_outgoing(), from_b = ends.b.take_outgoing();
    at_b += ends.b.read(from_a);
    at_a += ends.a.read(from_b);
  }
  EXPECT_EQ(at_a, std::string(50, 'y'));
  EXPECT_EQ(at_b, std::string(50, 'x'));
}

// Each record has a key of its own.
TEST(SealedRecords, ManyNewKeysForLittleDataAreRefused) {
  SealedEnds ends;
  ends.a.records.replace_key_after(1);
  std::string received;
  uint64_t records = 0;
  for (; records < 2 * SealedRecords::kKeysMax; ++records) {
    ends.a.write("x");
    received = ends.b.read(ends.a.take_outgoing());
    if (received != "x") break;
  }
  EXPECT_EQ(received, "it sends many new keys for its data");
  EXPECT_EQ(records, SealedRecords::kKeysMax + 1);
}

// An answer comes under the old key, and the data after it under the new one.
TEST(SealedRecords, ARequestedKeyIsAnnounced) {
  SealedEnd end(1, 2);
  const Key secret = key_of(2);
  forge::Sealer other(Bytes(secret.bytes.begin(), secret.bytes.end()));
  end.write("before");
  const Bytes request = raw_bytes(std::string("\x18\0\0\1\1", 5));
  EXPECT_EQ(end.read(other.seal(22, request)), "");
  end.write("after");
  SealedEnds peers;
  EXPECT_EQ(peers.b.read(end.take_outgoing()), "beforeafter");
}

TEST(SealedRecords, NothingIsAnsweredAfterClose) {
  SealedEnd end(1, 2);
  const Key secret = key_of(2);
  forge::Sealer other(Bytes(secret.bytes.begin(), secret.bytes.end()));
  end.records.close();
  end.take_outgoing();
  EXPECT_EQ(end.read(other.seal(22, raw_bytes(std::string("\x18\0\0\1\1", 5)))), "");
  EXPECT_EQ(end.queue.size(), 0u);
}

TEST(SealedRecords, PaddingIsRemoved) {
  SealedEnd end(1, 2);
  const Key secret = key_of(2);
  forge::Sealer other(Bytes(secret.bytes.begin(), secret.bytes.end()));
  EXPECT_EQ(end.read(other.seal(raw_bytes(std::string("data\x17\0\0\0", 8)))), "data");
}

TEST(SealedRecords, AFailureIsAnnouncedUnderItsOwnNumber) {
  SealedEnds ends;
  ends.a.write("fine");
  Bytes bytes = ends.a.take_outgoing();
  bytes.back() ^= std::byte{1};
  ends.b.write("sent");
  EXPECT_EQ(ends.b.read(bytes), "a record is damaged: decryption failed or bad record mac");
  EXPECT_EQ(ends.a.read(ends.b.take_outgoing()), "sentit ended the connection: bad record mac");
}

TEST(SealedRecords, ACloseEndsTheData) {
  SealedEnds ends;
  ends.a.write("last");
  ends.a.records.close();
  EXPECT_EQ(ends.b.read(ends.a.take_outgoing() + raw_bytes("whatever follows")), "last");
  EXPECT_TRUE(ends.b.records.closed_by_other());
}

// ---- With helpers ----

// Both ends, or only one of them, share their work.
TEST(SealedRecords, HelpersGiveTheSameData) {
  for (const int sharing : {1, 2, 3}) {
    for (const uint64_t records_per_key : {1u, 3u, 5u, 7u, 1000u}) {
      for (const size_t piece : {16'405u, 16'406u, 100'000u, 1'000'000u}) {
        SealedEnds ends;
        if ((sharing & 1) != 0) ends.a.records.share_work(ends.a.helpers);
        if ((sharing & 2) != 0) ends.b.records.share_work(ends.b.helpers);
        ends.a.records.replace_key_after(records_per_key);
        std::string received;
        const std::string header = text_of_size(64), text = text_of_size(700'000);
        const std::array spans = {std::as_bytes(std::span(header)), std::as_bytes(std::span(text))};
        const size_t taken = ends.a.records.write(spans).value();
        EXPECT_EQ(ends.b.read(ends.a.take_outgoing(), piece), (header + text).substr(0, taken));
        ends.a.write("the rest is short");
        EXPECT_EQ(ends.b.read(ends.a.take_outgoing(), piece), "the rest is short");
      }
    }
  }
}

// The records before the damaged one are good. Nothing of the others is returned, although they
// were opened together.
TEST(SealedRecords, HelpersReturnNothingFromTheDamagedRecordOn) {
  constexpr size_t kContent = RecordCipher::kPlainBytesMax;
  constexpr size_t kRecord = kContent + RecordCipher::kExtraBytes;
  const std::string text = text_of_size(8 * kContent);
  for (size_t damaged = 0; damaged < 8; ++damaged) {
    for (const size_t at : {size_t{5}, kRecord / 2, kRecord - 1}) {
      SealedEnds ends;
      ends.a.records.share_work(ends.a.helpers);
      ends.b.records.share_work(ends.b.helpers);
      ends.a.write(text);
      Bytes bytes = ends.a.take_outgoing();
      ASSERT_EQ(bytes.size(), 8 * kRecord);
      bytes[damaged * kRecord + at] ^= std::byte{1};
      EXPECT_TRUE(ends.b.read(bytes) ==
                  text.substr(0, damaged * kContent) +
                      "a record is damaged: decryption failed or bad record mac");
    }
  }
}

TEST(SealedRecords, NoTwoRecordsOfHelpersHaveOneNumber) {
  SealedEnd end(1, 2);
  end.records.share_work(end.helpers);
  const std::string same(20 * RecordCipher::kPlainBytesMax, 'x');
  end.write(same);
  const Bytes bytes = end.take_outgoing();
  constexpr size_t kRecord = RecordCipher::kPlainBytesMax + RecordCipher::kExtraBytes;
  std::set<Bytes> seen;
  for (size_t at = 0; at < bytes.size(); at += kRecord)
    EXPECT_TRUE(seen.emplace(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                             bytes.begin() + static_cast<std::ptrdiff_t>(at + kRecord))
                    .second);
  EXPECT_EQ(seen.size(), 20u);
}

// Full records are opened together under one key, so none of them may replace the key.
TEST(SealedRecords, OnlyDataFillsARecord) {
  const Key secret = key_of(2);
  for (const uint8_t type : {21, 22, 23}) {
    SealedEnd end(1, 2);
    forge::Sealer other(Bytes(secret.bytes.begin(), secret.bytes.end()));
    Bytes content = raw_bytes(std::string("\x18\0\0\1\0", 5)) + Bytes(1, std::byte{type});
    content.resize(RecordCipher::kPlainBytesMax + 1);
    EXPECT_EQ(end.read(other.seal(content)), type == 23
                                                 ? std::string("\x18\0\0\1\0", 5)
                                                 : "a record is damaged: no data in a full record");
  }
}

TEST(SealedRecords, TheQueueOfHelpersIsBounded) {
  SealedEnds ends;
  ends.a.records.share_work(ends.a.helpers);
  const std::string text = text_of_size(2 * SealedRecords::kSharedOutgoingBytesMax);
  const auto bytes = std::as_bytes(std::span(text));
  const size_t taken = ends.a.records.write(std::span(&bytes, 1)).value();
  EXPECT_GT(ends.a.queue.size(), SealedRecords::kOutgoingBytesMax);
  EXPECT_LE(ends.a.queue.size(), SealedRecords::kSharedOutgoingBytesMax);
  EXPECT_TRUE(ends.b.read(ends.a.take_outgoing()) == text.substr(0, taken));
}

TEST(SealedRecords, TheQueueIsBounded) {
  SealedEnds ends;
  const std::string text = text_of_size(2 * SealedRecords::kOutgoingBytesMax);
  const auto bytes = std::as_bytes(std::span(text));
  const size_t taken = ends.a.records.write(std::span(&bytes, 1)).value();
  EXPECT_LE(ends.a.queue.size(), SealedRecords::kOutgoingBytesMax);
  EXPECT_TRUE(ends.b.read(ends.a.take_outgoing()) == text.substr(0, taken));
}

}  // namespace
}  // namespace pccl::net
