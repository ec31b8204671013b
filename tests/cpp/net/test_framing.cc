#include "csrc/net/framing.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "tests/cpp/net/frames.h"

namespace pccl::net {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::mt19937_64& random, size_t size) {
  Bytes bytes(size + 8);
  for (size_t at = 0; at < size; at += 8) {
    const uint64_t number = random();
    std::memcpy(bytes.data() + at, &number, 8);
  }
  bytes.resize(size);
  return bytes;
}

// All bytes that the writer has to send, as one sequence.
Bytes drain(FrameWriter& writer) {
  Bytes out;
  while (true) {
    size_t bytes = 0;
    for (const auto& span : writer.gather()) {
      out.insert(out.end(), span.begin(), span.end());
      bytes += span.size();
    }
    if (bytes == 0) return out;
    writer.wrote(bytes);
  }
}

// Gives the reader `bytes` in pieces of at most `piece_max`; stops at the first refusal.
Status give(FrameReader& reader, std::span<const std::byte> bytes, size_t piece_max = SIZE_MAX) {
  while (!bytes.empty()) {
    const std::span<std::byte> space = reader.space();
    EXPECT_FALSE(space.empty());
    const size_t piece = std::min({bytes.size(), space.size(), piece_max});
    std::memcpy(space.data(), bytes.data(), piece);
    const Status status = reader.filled(piece);
    if (!status.ok()) return status;
    bytes = bytes.subspan(piece);
  }
  return {};
}

// Records the calls of the reader.
class Recorder : public FrameSink {
 public:
  void on_frame(const FrameHeader& header) override { frames.push_back(header); }
  std::span<std::byte> on_chunk(const FrameHeader& header) override {
    chunks.push_back(header);
    landed = 0;
    landing.assign(header.length, std::byte{0xee});
    return discard ? std::span<std::byte>{} : std::span(landing);
  }
  void on_piece(size_t at, size_t bytes) override {
    EXPECT_EQ(at, landed);
    landed = at + bytes;
    ++pieces;
    if (during_piece) during_piece();
  }
  void on_chunk_end(bool valid) override {
    EXPECT_EQ(landed, landing.size());
    ends.push_back(valid);
  }

  size_t pieces = 0;
  std::vector<FrameHeader> frames, chunks;
  std::vector<bool> ends;
  Bytes landing;
  size_t landed = 0;
  bool discard = false;
  std::function<void()> during_piece;
};

TEST(FrameHeader, LayoutIsTheOneThatIsDocumented) {
  const FrameHeader header{.type = FrameType::kChunk,
                           .round = 0x0102,
                           .block = 0x03040506,
                           .epoch = Epoch{0x1112131415161718},
                           .op = {TagId{0x2122232425262728}, 0x31323334},
                           .digest = 0x4142434445464748,
                           .slice = 0x51525354,
                           .length = 0x00010203,
                           .value = 0x6162636465666768};
  const HeaderBytes bytes = encode_header(header);
  const unsigned char expected[60] = {
      'P',  'c',  'L',  '1',  5,    0,    2,    1,    0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12,
      0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31, 6,    5,
      4,    3,    0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, 0x54, 0x53, 0x52, 0x51, 3,
      2,    1,    0,    0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61, 0,    0,    0,    0};
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
  uint32_t sum;
  std::memcpy(&sum, bytes.data() + 60, 4);
  EXPECT_EQ(sum, checksum(std::span(bytes).first<60>()));
  Result<FrameHeader> back = decode_header(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value(), header);
}

// `change` makes a header hostile. The checksum is corrected unless `sum_too` is false.
std::string refusal(const std::function<void(HeaderBytes&)>& change, bool sum_too = true) {
  HeaderBytes bytes = encode_header(chunk(1, 100));
  change(bytes);
  if (sum_too) {
    const uint32_t sum = checksum(std::span(bytes).first<60>());
    std::memcpy(bytes.data() + 60, &sum, 4);
  }
  Result<FrameHeader> header = decode_header(bytes);
  if (header.ok()) return "accepted";
  EXPECT_EQ(header.status().code, Code::kProtocol);
  return header.status().message;
}

TEST(FrameHeader, HostileOnesAreRefusedWithAReason) {
  EXPECT_EQ(refusal([](HeaderBytes&) {}), "accepted");
  EXPECT_EQ(refusal([](HeaderBytes& h) { h[0] = std::byte{'G'}; }),
            "bad frame: no pccl lane speaks like this");
  EXPECT_EQ(refusal([](HeaderBytes& h) { h[50] ^= std::byte{1}; }, false),
            "bad frame: the checksum of its header does not match");
  EXPECT_EQ(refusal([](HeaderBytes& h) { h[4] = std::byte{0}; }), "bad frame: unknown type 0");
  EXPECT_EQ(refusal([](HeaderBytes& h) { h[4] = std::byte{12}; }), "bad frame: unknown type 12");
  EXPECT_EQ(refusal([](HeaderBytes& h) { h[5] = std::byte{1}; }),
            "bad frame: a reserved field is not zero");
  EXPECT_EQ(refusal([](HeaderBytes& h) { h[57] = std::byte{1}; }),
            "bad frame: a reserved field is not zero");
  EXPECT_EQ(refusal([](HeaderBytes& h) { h[47] = std::byte{1}; }),
            "bad frame: a payload of 16777316 bytes, at most 4194304");
  EXPECT_EQ(refusal([](HeaderBytes& h) { h[4] = std::byte{4}; }),
            "bad frame: a payload of 100 bytes, at most 0");
}

TEST(Framing, FramesArriveOneByteAtATime) {
  std::mt19937_64 random{1};
  for (const bool checked : {false, true}) {
    FrameWriter writer{checked};
    const Bytes payload = random_bytes(random, 300);
    writer.push(control(1));
    writer.push(control(2));
    writer.push_chunk(chunk(3, 300), payload);
    Bytes stream = drain(writer);
    EXPECT_EQ(stream.size(), 3 * 64 + 300 + 8u);
    writer.push_chunk(chunk(4, 0), {});
    writer.push(control(5));
    const Bytes more = drain(writer);
    stream.insert(stream.end(), more.begin(), more.end());

    Recorder sink;
    FrameReader reader{sink, checked};
    ASSERT_TRUE(give(reader, stream, 1).ok());
    EXPECT_EQ(sink.frames, (std::vector{control(1), control(2), control(5)}));
    EXPECT_EQ(sink.chunks, (std::vector{chunk(3, 300), chunk(4, 0)}));
    EXPECT_EQ(sink.ends, (std::vector<bool>{true}));  // an empty chunk has no landing
    EXPECT_EQ(reader.certain(), 64u);
  }
}

// A copy leaves before a chunk that has not begun. The withdrawal of that chunk does not affect it.
TEST(Framing, ACopyIsAChunkOfItsOwn) {
  std::mt19937_64 random{9};
  for (const bool checked : {false, true}) {
    FrameWriter writer{checked};
    const Bytes payload = random_bytes(random, 300);
    Bytes copied = random_bytes(random, 5000);
    const Bytes before = copied;
    writer.push_chunk(chunk(3, 300), payload);
    writer.push_copy(chunk(4, 5000), copied);
    copied.assign(copied.size(), std::byte{0});
    EXPECT_EQ(writer.queued_bytes(), 64 + 5000 + 8u);
    writer.withdraw();
    EXPECT_FALSE(writer.chunk_pending());
    const Bytes stream = drain(writer);
    Recorder sink;
    FrameReader reader{sink, checked};
    ASSERT_TRUE(give(reader, stream, 700).ok());
    EXPECT_EQ(sink.chunks, (std::vector{chunk(4, 5000)}));
    EXPECT_EQ(sink.ends, (std::vector<bool>{true}));
    EXPECT_EQ(sink.landing, before);
  }
}

// Some bytes wait at every moment. Bytes that have left must not be kept for that reason.
TEST(FrameWriter, ForgetsWhatHasLeft) {
  FrameWriter writer;
  const Bytes payload(60000);
  Bytes stream;
  for (int count = 0; count < 200; ++count) {
    writer.push_copy(chunk(static_cast<uint64_t>(count), 60000), payload);
    if (count < 2) continue;
    size_t bytes = 0;
    for (const auto& span : writer.gather()) {
      const size_t part = std::min<size_t>(span.size(), 60072 - bytes);
      stream.insert(stream.end(), span.begin(), span.begin() + static_cast<ptrdiff_t>(part));
      bytes += part;
    }
    writer.wrote(bytes);
    EXPECT_EQ(writer.queued_bytes(), 2 * 60072u);
  }
  const Bytes rest = drain(writer);
  stream.insert(stream.end(), rest.begin(), rest.end());
  Recorder sink;
  FrameReader reader{sink};
  ASSERT_TRUE(give(reader, stream, 100000).ok());
  EXPECT_EQ(sink.ends.size(), 200u);
}

Bytes random_payload(size_t bytes) {
  std::mt19937_64 random{2};
  return random_bytes(random, bytes);
}

// The bytes of one chunk on the wire.
Bytes chunk_with(const Bytes& payload) {
  FrameWriter writer;
  writer.push_chunk(chunk(1, payload.size()), payload);
  return drain(writer);
}

TEST(FrameReader, LandsWhatCameWithTheHeaderAndThenInPlace) {
  const Bytes payload = random_payload(20000);
  const Bytes stream = chunk_with(payload);
  Recorder sink;
  FrameReader reader{sink};
  ASSERT_TRUE(give(reader, std::span(stream).first(64 + 1000)).ok());
  EXPECT_EQ(sink.landed, 1000u);
  EXPECT_EQ(reader.space().data(), sink.landing.data() + 1000);
  EXPECT_EQ(reader.space().size(), 19000u);
  EXPECT_EQ(reader.certain(), 19008u);
  ASSERT_TRUE(give(reader, std::span(stream).subspan(64 + 1000)).ok());
  EXPECT_EQ(sink.ends, (std::vector<bool>{true}));
  EXPECT_EQ(sink.landing, payload);
}

TEST(FrameReader, CopiedSpansBecomeOnePiece) {
  const Bytes payload = random_payload(20000);
  const Bytes stream = chunk_with(payload);
  Recorder sink;
  FrameReader reader{sink};
  auto take = [&, rest = std::span<const std::byte>(stream)](size_t bytes) mutable {
    ASSERT_TRUE(reader.take(rest.first(bytes)).ok());
    rest = rest.subspan(bytes);
  };
  take(64 + 1000);
  take(3000);
  EXPECT_EQ(sink.landed, 0u);
  reader.report();
  EXPECT_EQ(sink.landed, 4000u);
  reader.report();
  EXPECT_EQ(sink.pieces, 1u);
  take(16000);
  EXPECT_EQ(sink.pieces, 2u) << "the end of the payload is reported at once";
  take(8);
  EXPECT_EQ(sink.ends, (std::vector<bool>{true}));
  EXPECT_EQ(sink.landing, payload);
}

TEST(FrameReader, RefusesAChangedPayloadOnlyWhenChecked) {
  std::mt19937_64 random{3};
  for (const bool checked : {false, true}) {
    FrameWriter writer{checked};
    const Bytes payload = random_bytes(random, 700000);
    writer.push_chunk(chunk(1, payload.size()), payload);
    Bytes stream = drain(writer);
    stream[64 + random() % payload.size()] ^= std::byte{4};
    Recorder sink;
    FrameReader reader{sink, checked};
    const Status status = give(reader, stream, 100000);
    EXPECT_EQ(status.ok(), !checked) << status.message;
    EXPECT_EQ(sink.ends.size(), checked ? 0u : 1u);
    EXPECT_EQ(reader.filled(0), status);  // the refusal is permanent
  }
}

TEST(FrameReader, RefusesATrailerThatSaysNothing) {
  FrameWriter writer;
  const Bytes payload(10);
  writer.push_chunk(chunk(1, 10), payload);
  Bytes stream = drain(writer);
  stream[64 + 10 + 4] = std::byte{3};
  Recorder sink;
  FrameReader reader{sink};
  EXPECT_EQ(give(reader, stream).message, "bad frame: a chunk ends in neither valid nor void");
}

TEST(FrameReader, NoiseIsRefusedAtTheFirstHeader) {
  std::mt19937_64 random{4};
  Recorder sink;
  FrameReader reader{sink};
  EXPECT_FALSE(give(reader, random_bytes(random, 5000), 7).ok());
  EXPECT_TRUE(sink.frames.empty() && sink.chunks.empty());
}

TEST(FrameReader, DetachedByItsSinkItStaysSilent) {
  FrameWriter writer;
  const Bytes payload(100, std::byte{1});
  writer.push_chunk(chunk(1, 100), payload);
  Bytes stream = drain(writer);
  writer.push(control(2));
  const Bytes more = drain(writer);
  stream.insert(stream.end(), more.begin(), more.end());
  Recorder sink;
  FrameReader reader{sink};
  sink.during_piece = [&] { reader.detach(); };
  EXPECT_TRUE(give(reader, stream).ok());
  EXPECT_TRUE(sink.ends.empty() && sink.frames.empty());
}

TEST(FrameWriter, FramesOvertakeAChunkThatHasNotBegun) {
  FrameWriter writer;
  const Bytes payload(10);
  writer.push_chunk(chunk(1, 10), payload);
  writer.push(control(2));
  writer.gather();
  writer.wrote(64 + 1);  // the frame, and one byte of the chunk
  writer.push(control(3));
  EXPECT_EQ(writer.queued_bytes(), 64u);
  const auto spans = writer.gather();
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[0].size(), 63u);
  EXPECT_EQ(spans[1].data(), payload.data());  // sent straight from where it lies
  EXPECT_EQ(spans[2].size(), 8u);
  EXPECT_EQ(spans[3].size(), 64u);
}

TEST(FrameWriter, WithdrawnBeforeItBeganAChunkIsNeverSeen) {
  FrameWriter writer;
  Bytes payload(10);
  writer.push_chunk(chunk(1, 10), payload);
  writer.withdraw();
  EXPECT_FALSE(writer.chunk_pending());
  EXPECT_TRUE(writer.gather().empty());
  writer.withdraw();  // nothing to withdraw
  EXPECT_TRUE(writer.gather().empty());
}

// The chunk is cut after every possible number of bytes. The next chunk must follow intact, and
// none of the payload's later bytes may leave.
TEST(FrameWriter, WithdrawnAtEveryByteAChunkIsCompletedAndVoid) {
  const size_t length = 150;
  for (size_t cut = 1; cut < 64 + length + 8; ++cut) {
    FrameWriter writer{true};
    Bytes payload(length, std::byte{7});
    writer.push_chunk(chunk(1, length), payload);
    Bytes stream;
    while (stream.size() < cut) {
      const auto span = writer.gather()[0];
      const size_t bytes = std::min(span.size(), cut - stream.size());
      stream.insert(stream.end(), span.begin(), span.begin() + static_cast<std::ptrdiff_t>(bytes));
      writer.wrote(bytes);
    }
    writer.withdraw();
    payload.assign(length, std::byte{9});
    const Bytes next(20, std::byte{3});
    writer.push_chunk(chunk(2, 20), next);
    const Bytes more = drain(writer);
    stream.insert(stream.end(), more.begin(), more.end());
    Recorder sink;
    FrameReader reader{sink, true};
    ASSERT_TRUE(give(reader, stream).ok()) << cut;
    ASSERT_EQ(sink.chunks.size(), 2u);
    const bool complete = cut > 64 + length;  // its valid mark was under way already
    EXPECT_EQ(sink.ends, (std::vector<bool>{complete, true})) << cut;
    EXPECT_EQ(std::count(stream.begin(), stream.end(), std::byte{9}), 0) << cut;
    EXPECT_EQ(sink.landing, next);
  }
}

TEST(FrameReader, RevokedAtEveryByteALandingIsLeftAlone) {
  const size_t length = 150;
  const Bytes payload(length, std::byte{7});
  for (size_t cut = 64; cut < 64 + length + 8; ++cut) {
    FrameWriter writer{true};
    writer.push_chunk(chunk(1, length), payload);
    const Bytes stream = drain(writer);
    Recorder sink;
    FrameReader reader{sink, true};
    ASSERT_TRUE(give(reader, std::span(stream).first(cut)).ok());
    reader.revoke();
    sink.landing.assign(length, std::byte{1});
    ASSERT_TRUE(give(reader, std::span(stream).subspan(cut)).ok());
    ASSERT_TRUE(sink.landing == Bytes(length, std::byte{1})) << cut;
    ASSERT_TRUE(sink.ends.empty());
    ASSERT_TRUE(give(reader, encode_header(control(1))).ok());
    EXPECT_EQ(sink.frames.size(), 1u);
  }
}

// ---- A pipe cut at random; both ends withdraw and revoke at random ----

class Pipe : public FrameSink {
 public:
  explicit Pipe(uint64_t seed)
      : random_(seed), writer_(seed % 2 == 1), reader_(*this, seed % 2 == 1) {}

  void run() {
    for (int step = 0; step < 200 && !HasFailure(); ++step) {
      switch (random_() % 8) {
        case 0: send_control(); break;
        case 1: withdraw(); break;
        case 2: revoke(); break;
        default: break;
      }
      if (!writer_.chunk_pending()) send_chunk();
      move_bytes();
    }
    while (move_bytes() > 0) {
    }
    finish_sent();
    EXPECT_EQ(frames_, controls_sent_);
    for (const auto& [id, sent] : sent_) {
      if (sent.withdrawn) continue;
      ASSERT_TRUE(outcome_.contains(id)) << "chunk " << id << " was lost";
    }
  }
  static bool HasFailure() { return ::testing::Test::HasFailure(); }

 private:
  enum class Ending { kUnderWay, kDiscarded, kRevoked, kValid, kVoid };
  struct Sent {
    Bytes original;
    bool withdrawn = false;
  };

  void send_control() { writer_.push(control(controls_sent_++)); }
  void send_chunk() {
    finish_sent();
    static constexpr size_t kSizes[] = {0, 1, 8, 100, 4000, 4096, 9000, 300000, 700000};
    payload_ = random_bytes(random_, kSizes[random_() % std::size(kSizes)]);
    sent_[++last_id_].original = payload_;
    writer_.push_chunk(chunk(last_id_, payload_.size()), payload_);
  }
  // The payload was given back, so it may hold anything from now on.
  void finish_sent() { payload_.assign(payload_.size(), std::byte{0xdd}); }
  void withdraw() {
    if (writer_.chunk_pending()) sent_[last_id_].withdrawn = true;
    writer_.withdraw();
    EXPECT_FALSE(writer_.chunk_pending());
    finish_sent();
  }
  void revoke() {
    reader_.revoke();
    if (arriving_ != 0 && outcome_[arriving_] == Ending::kUnderWay) {
      outcome_[arriving_] = Ending::kRevoked;
      landing_.assign(landing_.size(), std::byte{0xaa});
      revoked_ = true;
    }
  }
  size_t move_bytes() {
    size_t budget = random_() % 4 == 0 ? 1 + random_() % 70 : random_() % 600000;
    size_t bytes = 0;
    for (const auto& span : writer_.gather()) {
      const size_t part = std::min(budget - bytes, span.size());
      way_.insert(way_.end(), span.begin(), span.begin() + static_cast<std::ptrdiff_t>(part));
      bytes += part;
    }
    writer_.wrote(bytes);
    budget = random_() % 4 == 0 ? 1 + random_() % 70 : random_() % 600000;
    size_t delivered = 0;
    const bool copied = random_() % 2 == 0;
    while (delivered < way_.size() && delivered < budget) {
      const std::span<std::byte> space = reader_.space();
      size_t part = std::min(way_.size(), budget) - delivered;
      if (!copied) part = std::min(part, space.size());
      const std::span<const std::byte> arrived = std::span(way_).subspan(delivered, part);
      delivered += part;
      if (!copied) std::ranges::copy(arrived, space.begin());
      const Status status = copied ? reader_.take(arrived) : reader_.filled(part);
      EXPECT_TRUE(status.ok()) << status.message;
      if (copied && random_() % 2 == 0) reader_.report();
    }
    way_.erase(way_.begin(), way_.begin() + static_cast<std::ptrdiff_t>(delivered));
    return way_.size() + (writer_.gather().empty() ? 0 : 1);
  }

  void on_frame(const FrameHeader& header) override { EXPECT_EQ(header.value, frames_++); }
  std::span<std::byte> on_chunk(const FrameHeader& header) override {
    check_revoked();
    EXPECT_GT(header.value, arriving_);
    arriving_ = header.value;
    landed_ = 0;
    EXPECT_EQ(header.length, sent_[arriving_].original.size());
    const bool discard = random_() % 4 == 0 || header.length == 0;
    outcome_[arriving_] = discard ? Ending::kDiscarded : Ending::kUnderWay;
    landing_.assign(discard ? 0 : header.length, std::byte{0xee});
    return landing_;
  }
  void on_piece(size_t at, size_t bytes) override {
    EXPECT_EQ(outcome_[arriving_], Ending::kUnderWay);
    EXPECT_EQ(at, landed_);
    EXPECT_GT(bytes, 0u);
    landed_ += bytes;
    if (random_() % 16 == 0) revoke();
  }
  void on_chunk_end(bool valid) override {
    const Sent& sent = sent_[arriving_];
    EXPECT_EQ(outcome_[arriving_], Ending::kUnderWay);
    EXPECT_EQ(landed_, sent.original.size());
    outcome_[arriving_] = valid ? Ending::kValid : Ending::kVoid;
    EXPECT_TRUE(valid ? landing_ == sent.original : sent.withdrawn);
  }
  // A revoked landing holds what its owner has written to it since.
  void check_revoked() {
    EXPECT_TRUE(!revoked_ || landing_ == Bytes(landing_.size(), std::byte{0xaa}));
    revoked_ = false;
  }

  std::mt19937_64 random_;
  FrameWriter writer_;
  FrameReader reader_;
  Bytes way_;
  Bytes payload_, landing_;
  uint64_t controls_sent_ = 0, frames_ = 0, last_id_ = 0, arriving_ = 0;
  size_t landed_ = 0;
  bool revoked_ = false;
  std::map<uint64_t, Sent> sent_;
  std::map<uint64_t, Ending> outcome_;
};

// ---- The hello of a lane ----

protocol::LaneHello some_hello() {
  return {.run_id = 1, .self = {2}, .other = {3}, .machine = 4, .serial = 5, .further = true};
}

TEST(Framing, AHelloComesBackAsItWas) {
  protocol::LaneHello hello = some_hello();
  hello.versions = {8, 300};
  const FrameHeader frame = hello_frame(FrameType::kHello, hello);
  EXPECT_EQ(frame.slice, 8u) << "for ever there";
  EXPECT_EQ(frame.op.sequence, 300u) << "for ever there";
  EXPECT_EQ(hello_in(FrameType::kHello, frame), hello);
  EXPECT_EQ(hello_in(FrameType::kHelloOk, frame), std::nullopt);
}

TEST(Framing, AHelloWithoutACommonVersionHasOnlyItsVersionsRead) {
  protocol::LaneHello foreign = some_hello();
  foreign.versions.lowest = foreign.versions.highest = protocol::kSpoken.highest + 1;
  FrameHeader frame = hello_frame(FrameType::kHello, foreign);
  frame.round = 77;
  ASSERT_TRUE(hello_in(FrameType::kHello, frame).has_value());
  EXPECT_EQ(hello_in(FrameType::kHello, frame)->versions, foreign.versions);
  frame = hello_frame(FrameType::kHello, some_hello());
  frame.round = 77;
  EXPECT_EQ(hello_in(FrameType::kHello, frame), std::nullopt)
      << "this one is understood, and wrong";
}

TEST(Framing, AHelloWithVersionsThatMakeNoSenseIsNone) {
  for (const auto& [lowest, highest] :
       {std::pair{12u, 9u}, std::pair{8u, 0u}, std::pair{8u, 0x10000u}, std::pair{0x10008u, 8u}}) {
    FrameHeader frame = hello_frame(FrameType::kHello, some_hello());
    frame.slice = lowest;
    frame.op.sequence = highest;
    EXPECT_EQ(hello_in(FrameType::kHello, frame), std::nullopt) << lowest << " to " << highest;
  }
}

TEST(Framing, SurvivesARandomPipe) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Pipe{seed}.run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace pccl::net
