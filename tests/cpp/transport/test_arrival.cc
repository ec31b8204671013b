// Frames and chunks arrive: their order, where they land, and how fast.
#include "tests/cpp/transport/transport.h"

namespace pccl::transport {
namespace {

using net::control;
using Values = std::vector<uint64_t>;

TEST_P(TransportTest, FramesArriveInOrderAndWholeWhateverThePieces) {
  const std::vector<size_t> sizes{1, 63, 64, 65, 300, 4095, 4096, 4097, 20000};
  for (const Pieces pieces : {Pieces::kLarge, Pieces::kSmall}) {
    open(pieces);
    Values expected;
    std::vector<std::byte> payload;
    uint64_t number = 0;
    // A frame, a chunk, a frame, a chunk, and so on.
    const auto next = [&] {
      const auto index = static_cast<size_t>(a().sent_count);
      port_a().send(control(++number));
      expected.push_back(number);
      if (index == sizes.size()) return;
      payload = net::content(++number, sizes[index]);
      expected.push_back(number);
      send_chunk(number, payload);
    };
    on_a([&] {
      a().on_sent = next;
      next();
      EXPECT_EQ(a().sent_count, 0) << "not from inside the call";
    });
    const size_t count = 2 * sizes.size() + 1;
    EXPECT_TRUE(until_b([&] { return b().order.size() == count; }));
    on_a([&] { a().on_sent = nullptr; });
    on_b([&] {
      EXPECT_EQ(b().order, expected);
      for (uint64_t chunk = 2; chunk < count; chunk += 2) EXPECT_TRUE(b().right(chunk)) << chunk;
    });
  }
}

TEST_P(TransportTest, ChunksOfAllSizesFollowEachOther) {
  const std::vector<size_t> sizes{
      1, 8, 4096, 65536, 1'000'000, protocol::kChunkBytesMax, 0, protocol::kChunkBytesMax, 0, 2};
  std::vector<std::byte> payload;
  const auto next = [&] {
    const auto index = static_cast<size_t>(a().sent_count);
    if (index == sizes.size()) return;
    payload = net::content(index, sizes[index]);
    send_chunk(index, payload);
  };
  on_a([&] {
    a().on_sent = next;
    next();
  });
  const uint64_t last = sizes.size() - 1;
  EXPECT_TRUE(until_b([&] { return b().right(last); }));
  on_b([&] {
    for (uint64_t index = 0; index <= last; ++index) {
      const bool landed = sizes[index] > 0;
      EXPECT_EQ(b().valid(index), landed ? std::optional(true) : std::nullopt) << index;
      EXPECT_EQ(b().right(index), landed) << index;
    }
  });
  EXPECT_TRUE(until_a([&] { return a().sent_count == std::ssize(sizes); }));
}

TEST_P(TransportTest, AChunkLandsWhereTheSinkSaysAndNowhereElse) {
  constexpr size_t kSize = 100'000, kAround = 1000;
  std::vector<std::byte> memory(kSize + 2 * kAround, std::byte{0xaa});
  const std::vector<std::byte> around(kAround, std::byte{0xaa});
  const std::vector<std::byte> payload = net::content(1, kSize);
  on_b([&] { b().land = [&](const auto&) { return std::span(memory).subspan(kAround, kSize); }; });
  on_a([&] { send_chunk(1, payload); });
  EXPECT_TRUE(until_b([&] { return b().right(1); }));
  EXPECT_TRUE(until_a([&] { return a().sent_count == 1; })) << "the payload is no longer lent";
  on_b([&] {
    EXPECT_TRUE(net::same(std::span(memory).first(kAround), around));
    EXPECT_TRUE(net::same(std::span(memory).last(kAround), around));
  });
}

TEST_P(TransportTest, AnEmptyChunkIsOnlyAHeader) {
  on_a([&] { send_chunk(1, {}); });
  EXPECT_TRUE(until_a([&] { return a().sent_count == 1; }));
  on_a([&] { port_a().send(control(2)); });
  EXPECT_TRUE(until_b([&] { return b().order.size() == 2; }));
  on_b([&] {
    EXPECT_EQ(b().order, (Values{1, 2}));
    EXPECT_EQ(b().calls, 2) << "neither a piece nor an end";
  });
}

TEST_P(TransportTest, AFrameWaitsOnlyForTheChunkUnderWay) {
  const Lent first(1, protocol::kChunkBytesMax), second(3, 1000);
  on_a([&] {
    a().on_sent = [&] {
      if (a().sent_count == 1) send_chunk(3, second.bytes());
    };
  });
  begin_chunk(1, first);
  on_a([&] { port_a().send(control(2)); });
  transport_->resume(kB);
  EXPECT_TRUE(until_b([&] { return b().right(3); }));
  on_b([&] {
    EXPECT_EQ(b().order, (Values{1, 2, 3}));
    EXPECT_TRUE(b().right(1));
  });
}

TEST_P(TransportTest, ACopyGoesAheadOfChunksAndItsPayloadIsNotUsedAfterTheCall) {
  const Lent large(1, protocol::kChunkBytesMax), small(4, 1000);
  begin_chunk(1, large);
  on_a([&] {
    a().on_sent = [&] {
      if (a().sent_count == 1) send_chunk(4, small.bytes());
    };
    for (const uint64_t number : {2, 3}) {
      Lent payload(number, 5000);
      port_a().send_copy(net::chunk(number, 5000), payload.bytes());
      payload.take_back();
    }
  });
  transport_->resume(kB);
  EXPECT_TRUE(until_b([&] { return b().right(4); }));
  on_b([&] {
    EXPECT_EQ(b().order, (Values{1, 2, 3, 4}));
    for (const uint64_t number : {1, 2, 3}) EXPECT_TRUE(b().right(number)) << number;
  });
  EXPECT_TRUE(until_a([&] { return a().sent_count == 2; })) << "a copy is not reported as sent";
}

TEST_P(TransportTest, ACopyOvertakesAChunkThatHasNotBegun) {
  const Lent payload(1, 1000), copied(2, 1000);
  on_a([&] {
    send_chunk(1, payload.bytes());
    port_a().send_copy(net::chunk(2, 1000), copied.bytes());
  });
  EXPECT_TRUE(until_b([&] { return b().right(1) && b().right(2); }));
  on_b([&] { EXPECT_EQ(b().order, (Values{2, 1})); });
}

TEST_P(TransportTest, AReceiverThatDoesNotReadHoldsTheSenderBack) {
  constexpr int kChunks = 16;
  const std::vector<std::byte> payload = net::content(7, 1'000'000);
  uint64_t number = 0;
  const auto next = [&] {
    if (number < kChunks) port_a().send_chunk(net::chunk(++number, payload.size()), payload);
  };
  transport_->stop(kB);
  on_a([&] {
    a().on_sent = next;
    next();
  });
  let_leave();
  on_a([&] { EXPECT_LE(transport_->traffic(kA).sent, Transport::kUnderWayBytesMax); });
  transport_->resume(kB);
  EXPECT_TRUE(until_b([&] { return b().valid(kChunks).has_value(); }));
  EXPECT_TRUE(until_a([&] { return a().sent_count == kChunks; }));
  on_b([&] {
    for (uint64_t chunk = 1; chunk <= kChunks; ++chunk) {
      EXPECT_EQ(b().valid(chunk), true) << chunk;
      EXPECT_TRUE(net::same(b().chunks[chunk].landing, payload)) << chunk;
    }
  });
}

TEST_P(TransportTest, BothEndsCountTheSameBytes) {
  const Lent payload(1, 300'000);
  on_a([&] {
    port_a().send(control(2));
    send_chunk(1, payload.bytes());
    port_a().send_copy(net::chunk(3, 500), payload.bytes().first(500));
  });
  on_b([&] { port_b().send(control(4)); });
  EXPECT_TRUE(until_b([&] { return b().valid(1) && b().valid(3); }));
  EXPECT_TRUE(until_a([&] { return a().sent_count == 1 && a().order.size() == 1; }));
  const uint64_t from_a = 64 + (64 + 300'000 + 8) + (64 + 500 + 8), from_b = 64;
  Transport::Traffic at_a, at_b;
  on_a([&] { at_a = transport_->traffic(kA); });
  on_b([&] { at_b = transport_->traffic(kB); });
  EXPECT_EQ(at_a.sent, at_b.received);
  EXPECT_EQ(at_b.sent, at_a.received);
  if (transport_->encrypted()) {
    EXPECT_GT(at_a.sent, from_a);
    EXPECT_LT(at_a.sent, from_a + 5'000) << "the handshake, and 22 bytes a record";
    EXPECT_GT(at_b.sent, from_b);
  } else {
    EXPECT_EQ(at_a.sent, from_a);
    EXPECT_EQ(at_b.sent, from_b);
  }
}

}  // namespace
}  // namespace pccl::transport
