#include "csrc/net/record_key.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/cpp/net/tls_forge.h"

namespace pccl::net {
namespace {

using Cipher = RecordKey::Cipher;

struct Pair {
  explicit Pair(Cipher cipher = Cipher::kAes128Gcm, uint8_t secret = 1)
      : sealing(*RecordKey::make(cipher, RecordKey::Use::kSeal, key_of(secret))),
        opening(*RecordKey::make(cipher, RecordKey::Use::kOpen, key_of(secret))) {}

  Bytes seal(std::string_view content, uint8_t type = 23) {
    Bytes record(content.size() + RecordKey::kExtraBytes);
    EXPECT_TRUE(sealing.seal(type, std::as_bytes(std::span(content)), record));
    return record;
  }
  // The content with its type at the end; "refused" if the record is not accepted.
  std::string open(Bytes record) {
    const auto content = opening.open(record);
    return content ? text_of(*content) : "refused";
  }

  RecordKey sealing, opening;
};

TEST(RecordKey, OpensEachRecordOnceAndInOrder) {
  for (const Cipher cipher : {Cipher::kAes128Gcm, Cipher::kChaCha20Poly1305}) {
    Pair pair(cipher);
    const Bytes first = pair.seal("one"), second = pair.seal(""), third = pair.seal("three");
    EXPECT_EQ(pair.open(first), "one\x17");
    EXPECT_EQ(pair.open(second), "\x17");
    EXPECT_EQ(pair.open(third), "three\x17");
    EXPECT_EQ(pair.open(third), "refused");
    EXPECT_EQ(pair.sealing.records(), 3u);
  }
}

// The bytes of another implementation of RFC 8446.
TEST(RecordKey, SealsAsTheRfcDoes) {
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

TEST(RecordKey, ReplacedKeysFitTogether) {
  for (const Cipher cipher : {Cipher::kAes128Gcm, Cipher::kChaCha20Poly1305}) {
    Pair pair(cipher);
    EXPECT_TRUE(pair.sealing.replace());
    const Bytes record = pair.seal("new");
    EXPECT_EQ(pair.open(record), "refused");
    EXPECT_TRUE(pair.opening.replace());
    EXPECT_EQ(pair.open(record), "new\x17");
  }
}

// A nonce of its own for each record: the same content never gives the same bytes.
TEST(RecordKey, NoNumberIsUsedTwice) {
  Pair pair;
  std::set<Bytes> seen;
  for (int i = 0; i < 1000; ++i) {
    if (i % 100 == 99) {
      EXPECT_TRUE(pair.sealing.replace());
    }
    EXPECT_TRUE(seen.insert(pair.seal("same")).second);
  }
}

TEST(RecordKey, AChangedByteIsRefused) {
  const Bytes record = Pair().seal("content");
  for (size_t i = 0; i < record.size(); ++i) {
    if (i == 3 || i == 4) continue;  // the length: of another record
    Bytes changed = record;
    changed[i] ^= std::byte{1};
    EXPECT_EQ(Pair().open(changed), "refused") << "byte " << i;
  }
  EXPECT_EQ(Pair(Cipher::kAes128Gcm, 2).open(record), "refused");
  EXPECT_EQ(Pair(Cipher::kChaCha20Poly1305).open(record), "refused");
}

TEST(RecordKey, ARecordWithoutRoomForATagIsRefused) {
  EXPECT_EQ(Pair().open(forge::record(23, Bytes(15))), "refused");
  EXPECT_EQ(Pair().open(forge::record(23, Bytes(16))), "refused");
}

}  // namespace
}  // namespace pccl::net
