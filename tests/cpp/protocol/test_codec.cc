#include "csrc/protocol/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <set>

#include "tests/cpp/protocol/random_message.h"

namespace pccl::protocol {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::initializer_list<int> numbers) {
  Bytes bytes;
  for (const int number : numbers) bytes.push_back(static_cast<std::byte>(number));
  return bytes;
}

Bytes framed(const Message& message) {
  Bytes bytes;
  encode(message, bytes);
  return bytes;
}

// The message without its length prefix, as decode() takes it.
Bytes body(const Message& message) {
  const Bytes bytes = framed(message);
  return {bytes.begin() + 4, bytes.end()};
}

std::string refusal(const Bytes& bytes) {
  Result<Message> message = decode(bytes);
  return message.ok() ? "accepted" : message.status().message;
}

Hello hello_of(const VersionRange& versions, const std::string& run = {}) {
  Hello hello;
  hello.versions = versions;
  hello.run = run;
  return hello;
}
Resume resume_of(const VersionRange& versions, const std::string& run = {}) {
  Resume resume;
  resume.versions = versions;
  resume.run = run;
  return resume;
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "in: " << (text)

TEST(Codec, LayoutIsTheOneThatIsDocumented) {
  EXPECT_EQ(framed(Ping{0x0102030405060708, 9, Epoch{10}}),
            bytes_of({26, 0, 0, 0, 5, 0, 8, 7,  6, 5, 4, 3, 2, 1, 9,
                      0,  0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(framed(Leave{}), bytes_of({2, 0, 0, 0, 24, 0}));
  EXPECT_EQ(framed(Reject{Code::kKicked, "no"}),
            bytes_of({9, 0, 0, 0, 2, 0, 9, 2, 0, 0, 0, 'n', 'o'}));
  const Bytes hello = framed(hello_of({8, 0x0102}, "r"));
  EXPECT_EQ(Bytes(hello.begin() + 4, hello.begin() + 14),
            bytes_of({1, 0, 'P', 'C', 'C', 'L', 8, 0, 2, 1}));
  const Bytes resume = framed(resume_of({8, 0x0102}));
  EXPECT_EQ(Bytes(resume.begin() + 4, resume.begin() + 14),
            bytes_of({26, 0, 'P', 'C', 'C', 'L', 8, 0, 2, 1}));
}

TEST(Codec, EveryMessageComesBackAsItWas) {
  std::mt19937_64 random{1};
  std::set<std::string> seen;
  for (int i = 0; i < 20000; ++i) {
    const Message message = random_message(random);
    seen.insert(name(message));
    Result<Message> back = decode(body(message));
    ASSERT_TRUE(back.ok()) << back.status().message;
    ASSERT_TRUE(back.value() == message) << name(message);
  }
  EXPECT_EQ(seen.size(), std::variant_size_v<Message>);
}

template <typename S>
void expect_all_fields() {
  S structure;
  FieldCounter counter;
  fields(counter, structure);
  EXPECT_EQ(counter.count, members_of<S>()) << typeid(S).name();
}
template <typename... M>
void expect_all_fields_of(const std::variant<M...>*) {
  (expect_all_fields<M>(), ...);
}

TEST(Codec, NoFieldIsForgotten) {
  expect_all_fields_of(static_cast<const Message*>(nullptr));
  expect_all_fields<Member>();
  expect_all_fields<OpReport>();
  expect_all_fields<Verdict>();
  expect_all_fields<OpInfo>();
  expect_all_fields<StateEntry>();
  expect_all_fields<Offer>();
  expect_all_fields<OpKey>();
  expect_all_fields<RunSettings>();
  expect_all_fields<GivenSettings>();
}

TEST(Codec, RefusesEveryTruncationAndIgnoresWhatALaterVersionAdds) {
  std::mt19937_64 random{2};
  for (int i = 0; i < 300; ++i) {
    const Message message = random_message(random);
    Bytes bytes = body(message);
    if (bytes.size() > 400) continue;
    for (size_t length = 0; length < bytes.size(); ++length) {
      const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
      ASSERT_FALSE(decode(cut).ok()) << name(message) << " cut to " << length;
    }
    bytes.resize(bytes.size() + 1 + random() % 100, std::byte{0xff});
    Result<Message> longer = decode(bytes);
    ASSERT_TRUE(longer.ok()) << longer.status().message;
    EXPECT_TRUE(longer.value() == message) << name(message);
  }
}

TEST(Codec, SaysWhichMessageIsBadAndWhy) {
  EXPECT_CONTAINS(refusal({}), "without a type");
  EXPECT_CONTAINS(refusal(bytes_of({0, 0})), "unknown type 0");
  EXPECT_CONTAINS(refusal(bytes_of({99, 0})), "unknown type 99");
  Bytes bytes = body(LinkReport{PeerId{1}, LinkState::kDown, "", 1});
  bytes[10] = std::byte{3};
  EXPECT_CONTAINS(refusal(bytes), "bad LinkReport message: an enumerator of 3, at most 2");
  bytes = body(Welcome{});
  Welcome on_loopback;
  on_loopback.loopback_only = true;
  *std::ranges::mismatch(bytes, body(on_loopback)).in1 = std::byte{2};
  EXPECT_CONTAINS(refusal(bytes), "bad Welcome message: a truth value of 2");
  bytes = body(Register{"host", 1});
  bytes[3] = std::byte{1};  // now the text has 260 bytes
  EXPECT_CONTAINS(refusal(bytes), "bad Register message: a text of 260, at most 255");
  bytes = body(FreezeRequest{});
  bytes[10] = std::byte{129};
  EXPECT_CONTAINS(refusal(bytes), "bad FreezeRequest message: a list of 129, at most 128");
  bytes[10] = std::byte{2};
  EXPECT_CONTAINS(refusal(bytes), "a list of 2, more than there are bytes for");
}

TEST(Codec, IntroductionsWithoutACommonVersionSayWhichTheyHave) {
  const auto above = static_cast<uint16_t>(kSpoken.highest + 1);
  for (const VersionRange theirs : {VersionRange{above, above}, VersionRange{above, 0xffff}}) {
    Bytes bytes = body(hello_of(theirs, "run"));
    for (const size_t extra : {0, 100}) {
      bytes.resize(bytes.size() + extra, std::byte{0xff});  // the other fields may hold anything
      Result<Message> message = decode(bytes);
      ASSERT_TRUE(message.ok()) << message.status().message;
      EXPECT_TRUE(message.value() == Message(hello_of(theirs)));
    }
    bytes.resize(10);
    EXPECT_TRUE(decode(bytes).ok());
    bytes.resize(9);
    EXPECT_FALSE(decode(bytes).ok());
    Result<Message> resume = decode(body(resume_of(theirs, "run")));
    ASSERT_TRUE(resume.ok());
    EXPECT_TRUE(resume.value() == Message(resume_of(theirs)));
  }
  Bytes bytes = body(Hello{});
  bytes[2] = std::byte{'X'};
  EXPECT_CONTAINS(refusal(bytes), "magic number");
  EXPECT_CONTAINS(refusal(body(hello_of({12, 9}))), "it speaks versions 12 to 9");
}

TEST(Codec, IntroductionsWithACommonVersionAreUnderstood) {
  const auto above = static_cast<uint16_t>(kSpoken.highest + 1);
  for (const VersionRange theirs : {kSpoken, VersionRange{kSpoken.lowest, above}}) {
    Result<Message> message = decode(body(hello_of(theirs, "run")));
    ASSERT_TRUE(message.ok()) << message.status().message;
    EXPECT_TRUE(message.value() == Message(hello_of(theirs, "run")));
  }
}

TEST(Codec, RejectOfAnotherVersionIsUnderstood) {
  Bytes bytes = body(Reject{Code::kKicked, "later"});
  bytes[2] = std::byte{200};
  Result<Message> message = decode(bytes);
  ASSERT_TRUE(message.ok());
  EXPECT_TRUE(message.value() == Message(Reject{Code::kProtocol, "later"}));
}

TEST(Codec, TextsForPeopleAreCutBetweenCharacters) {
  std::string text(kTextBytesMax - 1, 'x');
  text += "\u00e4 and more";  // the two bytes of ä lie on both sides of the limit
  Result<Message> message = decode(body(Notice{text}));
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(std::get<Notice>(message.value()).text, std::string(kTextBytesMax - 1, 'x'));
}

TEST(CodecDeathTest, NamesThatAreTooLongAreOurOwnBug) {
  EXPECT_DEATH(framed(hello_of(kSpoken, std::string(kRunNameBytesMax + 1, 'x'))),
               "assertion failed");
}

TEST(Decoder, CutsAStreamWhereverItIsCut) {
  std::mt19937_64 random{3};
  for (int round = 0; round < 50; ++round) {
    std::vector<Message> sent, received;
    Bytes stream;
    for (int i = 0; i < 40; ++i) {
      sent.push_back(random_message(random));
      encode(sent.back(), stream);
    }
    Decoder decoder;
    const size_t piece_max = round == 0 ? 1 : 1 + random() % 3000;
    for (size_t at = 0; at < stream.size();) {
      const size_t piece = std::min(stream.size() - at, 1 + random() % piece_max);
      decoder.feed(std::span(stream).subspan(at, piece));
      at += piece;
      while (true) {
        auto next = decoder.next();
        ASSERT_TRUE(next.ok()) << next.status().message;
        if (!next.value()) break;
        received.push_back(std::move(*next.value()));
      }
    }
    ASSERT_TRUE(sent == received);
  }
}

TEST(Decoder, RefusesForEver) {
  Decoder decoder;
  decoder.feed(framed(Ping{1, 0, {}}));
  decoder.feed(bytes_of({2, 0, 0, 0, 99, 0}));
  decoder.feed(framed(Ping{2, 0, {}}));
  EXPECT_TRUE(decoder.next().value().has_value());
  auto next = decoder.next();
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.status().code, Code::kProtocol);
  decoder.feed(framed(Ping{3, 0, {}}));
  EXPECT_FALSE(decoder.next().ok());
}

TEST(Codec, NamesThatCannotBeShownAreRefused) {
  Begin begin;
  begin.info.tag = "layer.3\x1b[2J";
  EXPECT_CONTAINS(
      refusal(body(begin)),
      "bad Begin message: a name with characters that cannot be shown: layer.3\\x1b[2J");
  EXPECT_CONTAINS(refusal(body(Register{"host\nforged", 1})), "cannot be shown: host\\nforged");
  EXPECT_CONTAINS(refusal(body(Dial{PeerId{1}, "\u202e", 1})), "cannot be shown: \\u202e");
  Resume resume;
  resume.infos.push_back(begin.info);
  EXPECT_CONTAINS(refusal(body(resume)), "cannot be shown: layer.3");
  EXPECT_EQ(refusal(body(Register{"zürich.example", 1})), "accepted");
}

TEST(Decoder, RefusesALengthBeforeTheBytesCome) {
  Decoder decoder;
  const char* request = "GET / HTTP/1.1\r\n";
  decoder.feed(std::as_bytes(std::span(request, 4)));
  auto next = decoder.next();
  ASSERT_FALSE(next.ok());
  EXPECT_CONTAINS(next.status().message, "at most 16777216");
}

// A message that decodes must encode to bytes that decode to the same message. Nothing may crash.
void digest_hostile(const Bytes& bytes) {
  Result<Message> message = decode(bytes);
  if (!message.ok()) {
    ASSERT_EQ(message.status().code, Code::kProtocol);
    return;
  }
  Result<Message> again = decode(body(message.value()));
  ASSERT_TRUE(again.ok()) << again.status().message;
  ASSERT_TRUE(again.value() == message.value());
}

TEST(Codec, SurvivesMutationsAndNoise) {
  std::mt19937_64 random{4};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (int i = 0; i % 64 != 0 || std::chrono::steady_clock::now() < end; ++i) {
    Bytes bytes = body(random_message(random));
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % bytes.size();
      switch (random() % 5) {
        case 0: bytes[at] = static_cast<std::byte>(random()); break;
        case 1: bytes[at] ^= static_cast<std::byte>(1u << (random() % 8)); break;
        case 2: bytes.resize(1 + at); break;
        case 3:
          bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), std::byte{0xff});
          break;
        case 4: std::memset(bytes.data() + at, 0xff, std::min<size_t>(4, bytes.size() - at)); break;
      }
    }
    digest_hostile(bytes);
    bytes.resize(2 + random() % 80);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    bytes[0] = static_cast<std::byte>(1 + random() % std::variant_size_v<Message>);
    bytes[1] = std::byte{0};
    digest_hostile(bytes);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace pccl::protocol
