#include "csrc/net/record_cipher.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/cpp/net/tls_forge.h"

namespace pccl::net {
namespace {

using Suite = RecordCipher::Suite;

struct Pair {
  explicit Pair(Suite suite = Suite::kAes128Gcm, uint8_t secret = 1)
      : sealing(*RecordCipher::make(suite, RecordCipher::Use::kSeal, key_of(secret))),
        opening(*RecordCipher::make(suite, RecordCipher::Use::kOpen, key_of(secret))) {}

  Bytes seal(std::string_view content, uint8_t type = 23) {
    Bytes record(content.size() + RecordCipher::kExtraBytes);
    EXPECT_TRUE(sealing.seal(type, std::as_bytes(std::span(content)), record));
    return record;
  }
  // The content with its type at the end; "refused" if the record is not accepted.
  std::string open(Bytes record) {
    const auto content = opening.open(record);
    return content ? text_of(*content) : "refused";
  }

  RecordCipher sealing, opening;
};

TEST(RecordCipher, OpensEachRecordOnceAndInOrder) {
  for (const Suite suite : {Suite::kAes128Gcm, Suite::kChaCha20Poly1305}) {
    Pair pair(suite);
    const Bytes first = pair.seal("one"), second = pair.seal(""), third = pair.seal("three");
    EXPECT_EQ(pair.open(first), "one\x17");
    EXPECT_EQ(pair.open(second), "\x17");
    EXPECT_EQ(pair.open(third), "three\x17");
    EXPECT_EQ(pair.open(third), "refused");
    EXPECT_EQ(pair.sealing.records(), 3u);
  }
}

// The bytes of another implementation of RFC 8446.
TEST(RecordCipher, SealsAsTheRfcDoes) {
  const Key secret = key_of(1);
  forge::Sealer forged(Bytes(secret.bytes.begin(), secret.bytes.end()));
  Pair pair;
  for (const std::string& content : {std::string("data"), std::string(16384, 'x')}) {
    EXPECT_EQ(pair.seal(content), forged.seal(23, raw_bytes(content)));
  }
  const Bytes next =
      forge::expand_label(Bytes(secret.bytes.begin(), secret.bytes.end()), "traffic upd", {}, 32);
  EXPECT_TRUE(pair.sealing.replace());
  EXPECT_EQ(pair.sealing.records(), 0u);
  EXPECT_EQ(pair.seal("data"), forge::Sealer(next).seal(23, raw_bytes("data")));
}

TEST(RecordCipher, ReplacedKeysFitTogether) {
  for (const Suite suite : {Suite::kAes128Gcm, Suite::kChaCha20Poly1305}) {
    Pair pair(suite);
    EXPECT_TRUE(pair.sealing.replace());
    const Bytes record = pair.seal("new");
    EXPECT_EQ(pair.open(record), "refused");
    EXPECT_TRUE(pair.opening.replace());
    EXPECT_EQ(pair.open(record), "new\x17");
  }
}

// A nonce of its own for each record: the same content never gives the same bytes.
TEST(RecordCipher, NoNumberIsUsedTwice) {
  Pair pair;
  std::set<Bytes> seen;
  for (int i = 0; i < 1000; ++i) {
    if (i % 100 == 99) {
      EXPECT_TRUE(pair.sealing.replace());
    }
    EXPECT_TRUE(seen.insert(pair.seal("same")).second);
  }
}

// Workers seal and open in any order, under a key that was replaced before.
TEST(RecordCipher, WorkersUseTheNumbersTheyAreGiven) {
  for (const Suite suite : {Suite::kAes128Gcm, Suite::kChaCha20Poly1305}) {
    Pair in_order(suite), pair(suite);
    for (Pair* const each : {&in_order, &pair}) {
      EXPECT_TRUE(each->sealing.replace());
      EXPECT_TRUE(each->opening.replace());
    }
    EXPECT_TRUE(pair.sealing.prepare(3));
    EXPECT_TRUE(pair.opening.prepare(2));
    const uint64_t sealed = pair.sealing.take(3);
    const uint64_t opened = pair.opening.take(3);
    const std::vector<Bytes> expected{in_order.seal("one"), in_order.seal("two"),
                                      in_order.seal("six")};
    const std::vector<std::string> contents{"one", "two", "six"};
    for (const size_t i : {2u, 0u, 1u}) {
      Bytes record(3 + RecordCipher::kExtraBytes);
      const auto content = std::as_bytes(std::span(contents[i]));
      EXPECT_TRUE(pair.sealing.seal(sealed + i, i, 23, content, record));
      EXPECT_EQ(record, expected[i]);
      EXPECT_EQ(text_of(pair.opening.open(opened + i, i % 2, record).value()),
                contents[i] + "\x17");
    }
    EXPECT_EQ(pair.open(pair.seal("next")), "next\x17");
  }
}

TEST(RecordCipher, AChangedByteIsRefused) {
  const Bytes record = Pair().seal("content");
  for (size_t i = 0; i < record.size(); ++i) {
    if (i == 3 || i == 4) continue;  // the length: of another record
    Bytes changed = record;
    changed[i] ^= std::byte{1};
    EXPECT_EQ(Pair().open(changed), "refused") << "byte " << i;
  }
  EXPECT_EQ(Pair(Suite::kAes128Gcm, 2).open(record), "refused");
  EXPECT_EQ(Pair(Suite::kChaCha20Poly1305).open(record), "refused");
}

TEST(RecordCipher, ARecordWithoutRoomForATagIsRefused) {
  EXPECT_EQ(Pair().open(forge::record(23, Bytes(15))), "refused");
  EXPECT_EQ(Pair().open(forge::record(23, Bytes(16))), "refused");
}

}  // namespace
}  // namespace pccl::net
