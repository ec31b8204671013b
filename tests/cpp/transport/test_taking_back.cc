// Memory that was lent is taken back: withdrawn payloads, revoked landings, discarded chunks.
#include <random>

#include "tests/cpp/transport/transport.h"

namespace pccl::transport {
namespace {

using net::control;
using Values = std::vector<uint64_t>;

TEST_P(TransportTest, WithdrawnBeforeItBeganAChunkIsNeverSeen) {
  Lent first(1, 100'000);
  const Lent second(2, 1000);
  on_a([&] {
    send_chunk(1, first.bytes());
    port_a().withdraw();
    first.take_back();
    send_chunk(2, second.bytes());
  });
  EXPECT_TRUE(until_b([&] { return b().right(2); }));
  on_b([&] { EXPECT_EQ(b().order, Values{2}); });
  EXPECT_TRUE(until_a([&] { return a().sent_count == 1; }));
}

TEST_P(TransportTest, WithdrawnInItsMiddleAChunkIsVoid) {
  Lent first(1, protocol::kChunkBytesMax);
  const Lent second(3, 1000);
  begin_chunk(1, first);
  on_a([&] {
    port_a().withdraw();
    first.take_back();
    port_a().send(control(2));
    send_chunk(3, second.bytes());
    port_a().withdraw();  // this one has not begun
    send_chunk(3, second.bytes());
  });
  transport_->resume(kB);
  EXPECT_TRUE(until_b([&] { return b().right(3); }));
  on_b([&] {
    EXPECT_EQ(b().order, (Values{1, 2, 3}));
    EXPECT_EQ(b().valid(1), false);
  });
  EXPECT_TRUE(until_a([&] { return a().sent_count == 1; }));
}

TEST_P(TransportTest, WithdrawnAfterItLeftAChunkStaysValid) {
  Lent first(1, 10'000);
  const Lent second(2, 1000);
  on_a([&] { send_chunk(1, first.bytes()); });
  EXPECT_TRUE(until_a([&] { return a().sent_count == 1; }));
  on_a([&] {
    first.take_back();
    port_a().withdraw();
    send_chunk(2, second.bytes());
  });
  EXPECT_TRUE(until_b([&] { return b().right(2); }));
  on_b([&] { EXPECT_TRUE(b().right(1)); });
  EXPECT_TRUE(until_a([&] { return a().sent_count == 2; }));
}

TEST_P(TransportTest, AfterARevocationNoByteOfTheLandingIsTouched) {
  const Lent payload(1, protocol::kChunkBytesMax), next(2, 1000);
  Lent landing(protocol::kChunkBytesMax);
  on_b([&] {
    b().land = [&](const FrameHeader& header) { return landing.bytes().first(header.length); };
  });
  begin_chunk(1, payload);
  transport_->stop(kA);  // so that B gets only a part of the chunk
  transport_->resume(kB);
  EXPECT_TRUE(until_b([&] { return b().landed(1) > 0; }));
  on_b([&] {
    EXPECT_LT(b().landed(1), payload.bytes().size());
    port_b().revoke();
    landing.take_back();
    b().land = nullptr;
  });
  transport_->resume(kA);
  EXPECT_TRUE(until_a([&] { return a().sent_count == 1; }));
  on_a([&] { send_chunk(2, next.bytes()); });
  EXPECT_TRUE(until_b([&] { return b().right(2); }));
  on_b([&] {
    EXPECT_EQ(b().order, (Values{1, 2}));
    EXPECT_EQ(b().valid(1), std::nullopt) << "a revoked chunk has no end";
    EXPECT_TRUE(b().failures.empty());
  });
}

TEST_P(TransportTest, ALandingMayBeRevokedWhenAPieceHasArrived) {
  const Lent payload(1, 1'000'000), next(2, 1000);
  Lent landing(1'000'000);
  on_b([&] {
    b().land = [&](const auto&) { return landing.bytes(); };
    b().on_any = [&] {
      if (b().landed(1) == 0) return;
      b().on_any = nullptr;
      port_b().revoke();
      landing.take_back();
      b().land = nullptr;
    };
  });
  on_a([&] {
    a().on_sent = [&] {
      if (a().sent_count == 1) send_chunk(2, next.bytes());
    };
    send_chunk(1, payload.bytes());
  });
  EXPECT_TRUE(until_b([&] { return b().right(2); }));
  on_b([&] { EXPECT_EQ(b().valid(1), std::nullopt); });
}

TEST_P(TransportTest, WithoutALandingThereIsNothingToRevoke) {
  const Lent first(1, 1000), second(2, 1000);
  on_b([&] { port_b().revoke(); });
  on_a([&] { send_chunk(1, first.bytes()); });
  EXPECT_TRUE(until_b([&] { return b().right(1); }));
  on_b([&] { port_b().revoke(); });
  EXPECT_TRUE(until_a([&] { return a().sent_count == 1; }));
  on_a([&] { send_chunk(2, second.bytes()); });
  EXPECT_TRUE(until_b([&] { return b().right(2); }));
}

TEST_P(TransportTest, AChunkWithoutALandingIsDiscarded) {
  const Lent first(1, protocol::kChunkBytesMax), second(2, 1000);
  on_b([&] {
    b().land = [&](const auto&) {
      b().land = nullptr;
      return std::span<std::byte>{};
    };
  });
  on_a([&] {
    a().on_sent = [&] {
      if (a().sent_count == 1) send_chunk(2, second.bytes());
    };
    send_chunk(1, first.bytes());
  });
  EXPECT_TRUE(until_b([&] { return b().right(2); }));
  on_b([&] {
    EXPECT_EQ(b().order, (Values{1, 2}));
    EXPECT_EQ(b().landed(1), 0u);
    EXPECT_EQ(b().valid(1), std::nullopt);
  });
}

// One end of a storm: it sends chunk after chunk, and withdraws and revokes at random.
class StormEnd {
 public:
  StormEnd(End& end, link::Port& port, uint64_t seed) : end_(end), port_(port), random_(seed) {}

  void begin() {
    end_.on_sent = [this] { send_next(); };
    end_.land = [this](const FrameHeader& header) {
      if (random_() % 8 == 0) return std::span<std::byte>{};
      landing_.assign(header.length, std::byte{0xee});
      return std::span(landing_);
    };
    end_.on_any = [this] { after_call(); };
    send_next();
  }
  void withdraw() {
    port_.withdraw();
    std::fill(payload_.begin(), payload_.end(), std::byte{0xdd});
    port_.send(control(++frames_sent));
    send_next();
  }
  void stop() {
    end_.on_sent = nullptr;
    port_.withdraw();
  }
  bool enough() const { return right_ > 5 && void_ > 0 && revoked_ > 0; }

  uint64_t frames_sent = 0, frames = 0;
  bool wrong = false;

 private:
  static constexpr uint64_t kChunk = uint64_t{1} << 32;  // to tell chunks from frames

  void send_next() {
    const size_t size = random_() % 2 == 0 ? 1 + random_() % 300 : 1 + random_() % 200'000;
    payload_ = net::content(++number_ + kChunk, size);
    port_.send_chunk(net::chunk(number_ + kChunk, size), payload_);
  }
  void after_call() {
    if (!end_.order.empty() && end_.order.back() < kChunk) {
      wrong |= end_.order.back() != ++frames;
      end_.order.clear();
    } else {
      look_at_chunk();
    }
    if (random_() % 64 != 0) return;
    port_.revoke();
    ++revoked_;
    std::fill(landing_.begin(), landing_.end(), std::byte{0xaa});
  }
  void look_at_chunk() {
    if (end_.order.empty()) return;
    const uint64_t number = end_.order.back();
    const std::optional<bool> valid = end_.valid(number);
    if (!valid) return;
    wrong |= *valid && !end_.right(number);
    ++(*valid ? right_ : void_);
    end_.chunks.clear();
    end_.order.clear();
  }

  End& end_;
  link::Port& port_;
  std::mt19937_64 random_;
  uint64_t number_ = 0;
  int right_ = 0, void_ = 0, revoked_ = 0;
  std::vector<std::byte> payload_, landing_;
};

TEST_P(TransportTest, SurvivesAStormOfWithdrawalsAndRevocations) {
  StormEnd storms[] = {{a(), port_a(), 1}, {b(), port_b(), 2}};
  for (const Side side : {kA, kB}) transport_->on(side, [&] { storms[side].begin(); });
  bool enough = false;
  for (int step = 0; step < 20000 && !(enough && step > 200); ++step) {
    enough = true;
    for (const Side side : {kA, kB}) {
      int turns = step % 4;
      transport_->until(side, [&] { return --turns < 0; });
      transport_->on(side, [&] {
        storms[side].withdraw();
        enough &= storms[side].enough();
      });
    }
  }
  EXPECT_TRUE(enough);
  for (const Side side : {kA, kB}) transport_->on(side, [&] { storms[side].stop(); });
  const uint64_t sent_by_a = storms[kA].frames_sent, sent_by_b = storms[kB].frames_sent;
  EXPECT_TRUE(until_b([&] { return storms[kB].frames == sent_by_a; }));
  EXPECT_TRUE(until_a([&] { return storms[kA].frames == sent_by_b; }));
  for (const Side side : {kA, kB}) {
    transport_->on(side, [&] {
      EXPECT_FALSE(storms[side].wrong);
      EXPECT_TRUE(ends_[side].failures.empty());
    });
  }
  // Until then filler of a withdrawn chunk may still go to a landing of the storms.
  for (const Side side : {kA, kB}) transport_->on(side, [&] { transport_->close(side); });
  for (End& end : ends_) end.on_any = nullptr;
}

}  // namespace
}  // namespace pccl::transport
