#include "csrc/probe/shell/probe_end.h"

#include <future>
#include <vector>

#include "csrc/net/address.h"
#include "csrc/net/framing.h"
#include "csrc/probe/client_core.h"
#include "csrc/probe/server_core.h"
#include "csrc/protocol/limits.h"
#include "tests/cpp/net/net_test.h"
#include "tests/cpp/net/tls_listener.h"
#include "tests/cpp/ring/raw_peer.h"

namespace pccl::probe {
namespace {

using net::FrameHeader;
using net::FrameType;
using ring::RawPeer;
using std::chrono::seconds;

constexpr uint64_t kDrawn = 78;
constexpr auto kWait = seconds(20);

using Keys = std::map<std::string, net::Key>;

class Server {
 public:
  explicit Server(Keys keys = {}) {
    port = on(loop_, [&] {
      end_ = std::make_unique<ProbeEnd>(
          loop_, std::make_unique<ServerCore>(net::machine_id()),
          ProbeEnd::Options{std::move(keys), "about"},
          ProbeEnd::Callbacks{.on_note = [this](const std::string&, const std::string& text) {
            notes.push_back(text);
          }});
      return end_->listen({"127.0.0.1", 0}).value();
    });
  }
  ~Server() {
    on(loop_, [&] { return end_.reset(), 0; });
  }
  bool notes_say(const std::string& text) {
    return eventually(loop_, [&] { return !notes.empty() && notes.back().find(text) == 0; });
  }

  uint16_t port = 0;
  std::vector<std::string> notes;  // on the loop

 private:
  net::Loop loop_{"server"};
  std::unique_ptr<ProbeEnd> end_;
};

struct Measurement {
  std::vector<Trial> trials;
  std::vector<TrialResult> here, there;
  Ready ready;
  Over over;
};

Plan short_plan() {
  return {.streams = {1, 3},
          .directions = {Direction::kThere, Direction::kBack, Direction::kBoth},
          .milliseconds = 400,
          .congestion = ""};
}

Measurement measure(uint16_t port, Keys keys = {}, Plan plan = short_plan()) {
  Measurement measured;
  std::promise<void> over;
  net::Loop loop("client");
  std::unique_ptr<ProbeEnd> end;
  on(loop, [&] {
    end = std::make_unique<ProbeEnd>(
        loop, std::make_unique<ClientCore>(std::move(plan), kDrawn, net::machine_id()),
        ProbeEnd::Options{std::move(keys)},
        ProbeEnd::Callbacks{
            .on_ready = [&](const Ready& ready) { measured.ready = ready; },
            .on_measured =
                [&](const Trial& trial, const TrialResult& here, const TrialResult& there) {
                  measured.trials.push_back(trial);
                  measured.here.push_back(here);
                  measured.there.push_back(there);
                },
            .on_over =
                [&](const Over& why) {
                  measured.over = why;
                  over.set_value();
                }});
    end->dial({"127.0.0.1", port});
    return 0;
  });
  EXPECT_EQ(over.get_future().wait_for(kWait), std::future_status::ready);
  on(loop, [&] { return end.reset(), 0; });
  return measured;
}

FrameHeader hello(bool further = false) {
  return net::hello_frame(FrameType::kHello, {.run_id = kDrawn, .further = further});
}

// A client that was admitted: a bare socket that has read the server's text.
RawPeer admitted(uint16_t port) {
  RawPeer client = RawPeer::dial(port);
  client.say(hello());
  const auto answer = client.hear();
  EXPECT_TRUE(answer && answer->type == FrameType::kHelloOk);
  EXPECT_EQ(client.hear()->length, 5u);
  size_t left = 5 + protocol::kFrameTrailerBytes;
  while (left > 0) left -= std::min(left, client.receive().size());
  return client;
}

Keys keys(uint8_t number) { return {{net::kAlice, net::key_of(number)}}; }

void expect_measured(const Measurement& measured) {
  EXPECT_EQ(measured.over.ending, Ending::kDone) << measured.over.why;
  EXPECT_EQ(measured.ready.about, "about");
  ASSERT_EQ(measured.trials.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(measured.trials[i].streams, i < 3 ? 1u : 3u);
    EXPECT_EQ(measured.trials[i].direction, static_cast<Direction>(i % 3));
    EXPECT_EQ(measured.there[i].bytes > 0, i % 3 != 1) << i;
    EXPECT_EQ(measured.here[i].bytes > 0, i % 3 != 0) << i;
    EXPECT_GT(measured.there[i].busy, 0u);
  }
}

TEST(ProbeEnd, MeasuresInPlainText) {
  Server server;
  expect_measured(measure(server.port));
  EXPECT_TRUE(server.notes_say("has ended, after 6 measurements"))
      << "the reason why the connection has ended";
}

TEST(ProbeEnd, MeasuresUnderTls) {
  Server server(keys(7));
  expect_measured(measure(server.port, keys(7)));
}

TEST(ProbeEnd, BothEndsNeedTheKey) {
  Server secured(keys(7)), open;
  EXPECT_EQ(measure(secured.port, keys(8)).over.ending, Ending::kToken);
  EXPECT_EQ(measure(secured.port).over.ending, Ending::kToken);
  EXPECT_NE(measure(open.port, keys(7)).over.ending, Ending::kDone);
  expect_measured(measure(secured.port, keys(7)));
}

TEST(ProbeEnd, NobodyListens) {
  EXPECT_EQ(measure(net::free_port()).over.ending, Ending::kRefused);
  net::Loop loop("loop");
  const bool listens = on(loop, [&] {
    ProbeEnd end(loop, std::make_unique<ServerCore>(1), {{}, "about"}, {});
    return end.listen({"192.0.2.1", 1}).ok();
  });
  EXPECT_FALSE(listens);
}

TEST(ProbeEnd, AnUnknownCongestionControl) {
  Server server;
  Plan plan = short_plan();
  plan.congestion = "none-such";
  EXPECT_EQ(measure(server.port, {}, plan).over.ending, Ending::kLost);
}

TEST(ProbeEnd, ASecondClientIsToldThatItIsBusy) {
  Server server;
  RawPeer first = admitted(server.port);
  EXPECT_EQ(measure(server.port).over.ending, Ending::kBusy);
}

TEST(ProbeEnd, HostileHandshakesCostTheirConnection) {
  Server server(keys(7));
  net::forge::shown = {net::kAlice, net::key_of(7)};
  const net::HeaderBytes said = net::encode_header(hello());
  const net::HeaderBytes refusal = net::encode_header(frame_of(Refusal::kToken));
  net::forge::withstands(
      {.port = server.port,
       .plain_answer = std::string(reinterpret_cast<const char*>(refusal.data()), 4),
       .said = [&] { return net::Bytes(said.begin(), said.end()); },
       .is_right =
           [](const net::Bytes& answer) {
             net::HeaderBytes bytes;
             if (answer.size() < bytes.size()) return false;
             std::copy_n(answer.begin(), bytes.size(), bytes.begin());
             const Result<FrameHeader> header = net::decode_header(bytes);
             return header.ok() && header.value().type == FrameType::kHelloOk;
           }});
  net::forge::shown = {};
}

TEST(ProbeEnd, GarbageCostsItsConnection) {
  Server server;
  for (const std::string& words :
       {std::string("GET / HTTP/1.1\r\n\r\n").append(100, 'x'), std::string(9000, '\0')}) {
    RawPeer stranger = RawPeer::dial(server.port);
    stranger.say(std::as_bytes(std::span(words)));
    EXPECT_TRUE(stranger.hung_up());
  }
  for (const FrameType type : {FrameType::kPing, FrameType::kChunk, FrameType::kTrialResult}) {
    RawPeer stranger = RawPeer::dial(server.port);
    FrameHeader header;
    header.type = type;
    header.length = type == FrameType::kChunk ? protocol::kChunkBytesMax : 0;
    stranger.say(header);
    EXPECT_TRUE(stranger.hung_up());
  }
  admitted(server.port);
}

TEST(ProbeEnd, ACrowdOfStrangersKeepsNobodyOut) {
  Server server;
  std::vector<RawPeer> crowd;
  for (size_t i = 0; i < 2 * protocol::kTrialStreamsMax + 20; ++i)
    crowd.push_back(RawPeer::dial(server.port));
  RawPeer client = admitted(server.port);
  EXPECT_TRUE(crowd.front().hung_up(2000)) << "the eldest makes room";
  client.say(FrameHeader{});
  EXPECT_EQ(client.hear()->type, FrameType::kPong);
}

TEST(ProbeEnd, SilenceAndHalfAHelloCostTheirConnection) {
  Server server;
  RawPeer silent = RawPeer::dial(server.port), slow = RawPeer::dial(server.port);
  const net::HeaderBytes bytes = net::encode_header(hello());
  slow.say(std::span(bytes).first(40));
  EXPECT_TRUE(silent.hung_up());
  EXPECT_TRUE(slow.hung_up());
  admitted(server.port);
}

TEST(ProbeEnd, AClientThatVanishesInATrialFreesTheServer) {
  Server server;
  {
    RawPeer client = admitted(server.port), stream = RawPeer::dial(server.port);
    client.say(frame_of(Trial{.milliseconds = 60'000, .direction = Direction::kBack}));
    EXPECT_EQ(client.hear()->type, FrameType::kTrial);
    stream.say(hello(true));
    EXPECT_EQ(stream.hear()->type, FrameType::kHelloOk);
    EXPECT_EQ(stream.hear()->type, FrameType::kChunk) << "data flows";
  }
  EXPECT_TRUE(server.notes_say("is gone: "));
  admitted(server.port);
}

TEST(ProbeEnd, AControlConnectionCarriesNoData) {
  Server server;
  RawPeer client = admitted(server.port);
  FrameHeader chunk;
  chunk.type = FrameType::kChunk;
  chunk.length = 100;
  client.say(chunk);
  EXPECT_TRUE(client.hung_up());
  EXPECT_TRUE(server.notes_say("is gone: sent data out of turn"));
}

// A server that says these bytes to whoever connects.
Over answered_with(const std::vector<net::Bytes>& words) {
  net::RawListener listener;
  std::thread server([&] {
    const int fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC);
    for (const net::Bytes& bytes : words) {
      [[maybe_unused]] const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    RawPeer(fd).hung_up();
  });
  const Over over = measure(listener.port()).over;
  server.join();
  return over;
}

TEST(ProbeEnd, AnotherServerIsNoProbeServer) {
  const auto bytes = [](const FrameHeader& header) {
    const net::HeaderBytes encoded = net::encode_header(header);
    return net::Bytes(encoded.begin(), encoded.end());
  };
  const std::string smtp = "220 mail.example ESMTP" + std::string(80, ' ');
  EXPECT_EQ(answered_with({net::raw_bytes(smtp)}).ending, Ending::kNoProbe);
  EXPECT_EQ(answered_with({}).why, "said nothing for 5 s");
  EXPECT_EQ(answered_with({bytes(hello())}).ending, Ending::kNoProbe);
  FrameHeader about;
  about.type = FrameType::kChunk;
  about.length = protocol::kAboutBytesMax + 1;
  const FrameHeader welcome = net::hello_frame(FrameType::kHelloOk, {.run_id = kDrawn});
  EXPECT_EQ(answered_with({bytes(welcome), bytes(about)}).why, "sent data out of turn");
}

}  // namespace
}  // namespace pccl::probe
