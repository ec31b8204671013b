// How a connection ends: closed, reset, or broken by bytes that are no frame.
#include <string>

#include "tests/cpp/transport/transport.h"

namespace pccl::transport {
namespace {

using net::control;
using Values = std::vector<uint64_t>;

// An end that has failed drops what it is given, and reports nothing more.
void use(link::Port& port, std::span<const std::byte> payload) {
  for (int i = 0; i < 2; ++i) {
    port.send(control(90));
    port.send_copy(net::chunk(91, payload.size()), payload);
    port.send_chunk(net::chunk(92, payload.size()), payload);
  }
  port.withdraw();
  port.revoke();
}

TEST_P(TransportTest, TheEndOfOneSideIsReportedOnceAtTheOther) {
  const Lent payload(1, 1000);
  on_a([&] { send_chunk(1, payload.bytes()); });
  EXPECT_TRUE(until_b([&] { return b().right(1); }));
  EXPECT_TRUE(until_a([&] { return a().sent_count == 1; }));
  on_a([&] { transport_->close(kA); });
  EXPECT_TRUE(until_b([&] { return b().failures.size() == 1; }));
  int calls = 0;
  on_b([&] {
    EXPECT_EQ(b().failure().code, Code::kSystem);
    EXPECT_FALSE(b().failure().message.empty());
    calls = b().calls;
    use(port_b(), payload.bytes());
  });
  int turns = 0;
  until_b([&] { return ++turns == 20; });
  on_b([&] { EXPECT_EQ(b().calls, calls); });
  on_a([&] { EXPECT_TRUE(a().failures.empty()) << "it has closed, so it is told nothing"; });
}

TEST_P(TransportTest, AfterAFailureNothingThatWasLentIsTouched) {
  Lent payload(1, protocol::kChunkBytesMax), landing(protocol::kChunkBytesMax);
  Lent answer(2, protocol::kChunkBytesMax);
  on_a([&] {
    a().on_any = [&] {
      if (!a().failures.empty()) payload.take_back();
    };
  });
  on_b([&] {
    b().land = [&](const auto&) { return landing.bytes(); };
    b().on_any = [&] {
      if (b().landed(1) == 0) return;
      transport_->reset(kB);  // in the middle: the whole chunk is more than can be under way
      landing.take_back();
      answer.take_back();
    };
    port_b().send_chunk(net::chunk(2, answer.bytes().size()), answer.bytes());
  });
  on_a([&] { send_chunk(1, payload.bytes()); });
  EXPECT_TRUE(until_a([&] { return a().failures.size() == 1; }));
  on_a([&] {
    EXPECT_EQ(a().failure().code, Code::kSystem);
    EXPECT_FALSE(a().failure().message.empty());
    EXPECT_EQ(a().sent_count, 0);
  });
  on_b([&] { EXPECT_TRUE(b().failures.empty()); });
}

TEST_P(TransportTest, AnEndMayBeClosedInEveryCallback) {
  const Lent payload(1, 1'500'000), answer(9, 100);
  for (int when = 1; when <= 12; ++when) {
    open(Pieces::kLarge);
    on_b([&] {
      b().on_any = [&, when] {
        if (b().calls == when) transport_->close(kB);
      };
      port_b().send_chunk(net::chunk(9, 100), answer.bytes());
    });
    on_a([&] {
      port_a().send(control(8));
      send_chunk(1, payload.bytes());
    });
    // The frame, the chunk, a piece, its end, and the answer: that is the least.
    EXPECT_TRUE(until_b([&] { return b().calls >= std::min(when, 5); }));
    on_b([&] { transport_->close(kB); });
    EXPECT_TRUE(until_a([&] { return a().failures.size() == 1; }));
    on_b([&] {
      EXPECT_LE(b().calls, when) << "a callback after close()";
      EXPECT_TRUE(b().failures.empty());
    });
  }
}

TEST_P(TransportTest, BytesThatAreNoFrameEndTheConnection) {
  const Lent payload(1, 1000);
  std::string request = "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
  request.resize(20'000, ' ');  // more follows when the first bytes are refused
  on_a([&] { transport_->inject(kA, std::as_bytes(std::span(request))); });
  EXPECT_TRUE(until_b([&] { return b().failures.size() == 1; }));
  EXPECT_TRUE(until_a([&] { return a().failures.size() == 1; })) << "the end that sent them";
  on_b([&] {
    EXPECT_EQ(b().failure().code, Code::kProtocol);
    EXPECT_NE(b().failure().message.find(transport_->refuses_noise_with()), std::string::npos);
    use(port_b(), payload.bytes());
  });
  on_a([&] { use(port_a(), payload.bytes()); });
  int turns = 0;
  until_b([&] { return ++turns == 20; });
  on_b([&] { EXPECT_EQ(b().calls, 1); });
  on_a([&] { EXPECT_EQ(a().calls, 1); });
}

TEST_P(TransportTest, FramesBeforeInvalidBytesAreGood) {
  const Lent payload(2, 1000);
  on_a([&] {
    port_a().send(control(1));
    send_chunk(2, payload.bytes());
  });
  EXPECT_TRUE(until_a([&] { return a().sent_count == 1; }));
  const std::vector<std::byte> noise(64, std::byte{7});
  on_a([&] { transport_->inject(kA, noise); });
  EXPECT_TRUE(until_b([&] { return b().failures.size() == 1; }));
  on_b([&] {
    EXPECT_EQ(b().order, (Values{1, 2}));
    EXPECT_TRUE(b().right(2));
  });
}

TEST_P(TransportTest, AChangedPayloadEndsTheConnectionIfItIsNoticed) {
  std::vector<std::byte> stream;
  const auto add = [&](std::span<const std::byte> bytes) {
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  };
  add(net::encode_header(net::chunk(1, 100)));
  add(net::content(1, 100));
  const uint32_t trailer[] = {0, 1};  // no checksum, and the mark of a valid chunk
  add(std::as_bytes(std::span(trailer)));
  on_a([&] { transport_->inject(kA, stream); });
  if (transport_->refuses_changes_with() == nullptr) {
    EXPECT_TRUE(until_b([&] { return b().right(1); }));
    return;
  }
  EXPECT_TRUE(until_b([&] { return b().failures.size() == 1; }));
  on_b([&] {
    EXPECT_EQ(b().failure().code, Code::kProtocol);
    EXPECT_NE(b().failure().message.find(transport_->refuses_changes_with()), std::string::npos);
    EXPECT_EQ(b().valid(1), std::nullopt);
  });
}

}  // namespace
}  // namespace pccl::transport
