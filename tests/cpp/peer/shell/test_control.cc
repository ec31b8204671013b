#include "csrc/peer/shell/control.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>
#include <thread>

#include "tests/cpp/peer/world.h"

namespace pccl::peer {
namespace {

// A master that the test plays by hand, over a plain blocking socket.
class ByHand {
 public:
  ByHand() {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    socklen_t size = sizeof at;
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
  }
  ~ByHand() {
    hang_up();
    close(listener_);
  }
  net::Endpoint endpoint() const { return {"127.0.0.1", port_}; }

  void answer_the_phone() {
    hang_up();
    connection_ = accept(listener_, nullptr, nullptr);
    decoder_ = {};
  }
  void hang_up() {
    if (connection_ >= 0) close(connection_);
    connection_ = -1;
  }
  void say(const protocol::Message& message) {
    std::vector<std::byte> bytes;
    protocol::encode(message, bytes);
    say_bytes(bytes);
  }
  void say_bytes(std::span<const std::byte> bytes) {
    EXPECT_EQ(send(connection_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // The next message that is not a Ping. `reads` counts the reads that returned bytes.
  protocol::Message hear() {
    while (true) {
      auto next = decoder_.next();
      EXPECT_TRUE(next.ok());
      if (next.ok() && next.value() && !std::holds_alternative<protocol::Ping>(*next.value()))
        return *next.value();
      if (next.ok() && next.value()) continue;
      std::vector<std::byte> bytes(1 << 20);
      const ssize_t size = recv(connection_, bytes.data(), bytes.size(), 0);
      if (size <= 0) return protocol::Leave{};
      ++reads;
      decoder_.feed(std::span(bytes).first(static_cast<size_t>(size)));
    }
  }
  template <typename M>
  M hear_a() {
    const protocol::Message message = hear();
    EXPECT_TRUE(std::holds_alternative<M>(message)) << protocol::name(message);
    const M* content = std::get_if<M>(&message);
    return content == nullptr ? M{} : *content;
  }

  // Makes the peer the only member of its group.
  void admit() {
    answer_the_phone();
    hear_a<protocol::Hello>();
    say(protocol::Welcome{self, 7, 1, "127.0.0.1", true});
    hear_a<protocol::Register>();
    say(protocol::EpochStart{epoch, epoch, {{self, "here"}}, {0}, {self}, {}, 1, {}});
  }

  const PeerId self{(uint64_t{1} << 32) | 1};
  const Epoch epoch{(uint64_t{1} << 32) | 1};
  size_t reads = 0;

 private:
  int listener_ = -1, connection_ = -1;
  uint16_t port_ = 0;
  protocol::Decoder decoder_;
};

Result<std::unique_ptr<Peer>> join(const ByHand& master) {
  return Peer::join(master.endpoint(), World::options(1), {}, {});
}

TEST(Control, NonsenseEndsTheJoin) {
  ByHand master;
  std::thread thread([&] {
    master.answer_the_phone();
    master.hear_a<protocol::Hello>();
    master.say_bytes(std::vector<std::byte>(100, std::byte{0xff}));
  });
  const Status status = join(master).status();
  thread.join();
  EXPECT_EQ(status.code, Code::kProtocol);
  EXPECT_TRUE(status.message.starts_with("the master at 127.0.0.1:")) << status.message;
}

TEST(Control, TheMessagesOfOneTurnLeaveInOneSend) {
  ByHand master;
  std::thread thread([&] {
    master.admit();
    const auto first = master.hear_a<protocol::Begin>();
    master.hear_a<protocol::Done>();
    master.say(protocol::Verdicts{
        master.epoch, 0, {{first.op, protocol::Outcome::kCommitted, Code::kOk, ""}}});
    const size_t before = master.reads;
    for (int i = 0; i < 100; ++i) {
      master.hear_a<protocol::Begin>();
      master.hear_a<protocol::Done>();
    }
    EXPECT_EQ(master.reads - before, 1u);
    master.hear_a<protocol::Leave>();
  });
  auto peer = std::move(join(master).value());
  std::promise<void> posted;
  peer->post(request(protocol::OpKind::kBarrier, 0), {}, [&](const OpResult& result) {
    EXPECT_TRUE(result.status.ok());
    for (int i = 0; i < 100; ++i) {
      peer->post(request(protocol::OpKind::kBarrier, 0), {}, [](const OpResult&) {});
    }
    posted.set_value();
  });
  posted.get_future().wait();
  peer->leave(std::chrono::seconds(10));
  thread.join();
}

TEST(Control, ABrokenConnectionIsResumed) {
  ByHand master;
  std::thread thread([&] {
    master.admit();
    const auto begun = master.hear_a<protocol::Begin>();
    master.hear_a<protocol::Done>();
    master.answer_the_phone();
    const auto resume = master.hear_a<protocol::Resume>();
    EXPECT_EQ(resume.peer, master.self);
    ASSERT_EQ(resume.ops.size(), 1u);
    EXPECT_EQ(resume.ops[0].state, protocol::OpState::kDone);
    EXPECT_EQ(resume.infos[0], begun.info);
    master.say(protocol::Resumed{1});
    master.say(protocol::Verdicts{
        master.epoch, 0, {{begun.op, protocol::Outcome::kCommitted, Code::kOk, ""}}});
    master.hear_a<protocol::Leave>();
  });
  auto peer = std::move(join(master).value());
  Outcome outcome;
  peer->post(request(protocol::OpKind::kBarrier, 0), {}, outcome.completion());
  EXPECT_EQ(outcome.wait(), Status{});
  peer->leave(std::chrono::seconds(10));
  thread.join();
}

TEST(Control, LinesOfTheLogSayWhichPeerOfWhichRun) {
  set_log_level("warning");  // another test of this process may have set it
  for (const uint32_t group : {0u, 2u}) {
    ByHand master;
    std::promise<void> resumed;
    std::thread thread([&] {
      master.answer_the_phone();
      master.hear_a<protocol::Hello>();
      master.say(protocol::Welcome{master.self, 7, 1, "127.0.0.1", true});
      master.hear_a<protocol::Register>();
      master.say(protocol::Notice{"the others are late"});
      master.say(protocol::EpochStart{
          master.epoch, master.epoch, {{master.self, "here"}}, {0}, {master.self}, {}, 1, {}});
      master.answer_the_phone();
      master.hear_a<protocol::Resume>();
      master.say(protocol::Resumed{1});
      master.say(protocol::Ping{1, 0, {}});
      master.hear_a<protocol::Pong>();
      resumed.set_value();
      master.hear_a<protocol::Leave>();
    });
    testing::internal::CaptureStderr();
    Options options = World::options(1);
    options.group = GroupId{group};
    auto peer = std::move(Peer::join(master.endpoint(), options, {}, {}).value());
    resumed.get_future().wait();
    peer->leave(std::chrono::seconds(10));
    thread.join();
    EXPECT_TRUE(flush_log(std::chrono::seconds(60)));
    const std::string log = testing::internal::GetCapturedStderr();
    const std::string run =
        std::string("Z warning: run \"test\"") + (group == 0 ? "" : ", group 2");
    const std::string at = "the master at " + text(master.endpoint());
    for (const std::string& line :
         {run + ": not admitted yet: the others are late; this process gives up in ",
          run + ", rank 0: admitted after ", run + ", rank 0: connection to " + at + " broke: ",
          run + ", rank 0: " + at + " is back"}) {
      EXPECT_NE(log.find(line), std::string::npos) << line << "\n" << log;
    }
  }
}

// ---- Probes of links, over real sockets ----

// Two peers of a master that the test plays by hand.
class Pair {
 public:
  Pair() {
    std::thread thread([this] { admit(); });
    std::vector<std::thread> joins;
    for (size_t rank = 0; rank < 2; ++rank) {
      joins.emplace_back([this, rank] {
        auto joined = Peer::join(masters_[rank].endpoint(), World::options(2), {}, {});
        ASSERT_TRUE(joined.ok()) << joined.status().message;
        peers_[rank] = std::move(joined.value());
      });
    }
    for (std::thread& join : joins) join.join();
    thread.join();
  }
  ~Pair() {
    for (auto& peer : peers_) peer->leave(std::chrono::milliseconds(100));
  }
  static PeerId id(size_t rank) { return {(uint64_t{1} << 32) | (rank + 1)}; }
  ByHand& master(size_t rank) { return masters_[rank]; }
  Peer& peer(size_t rank) { return *peers_[rank]; }
  void probe(size_t rank, uint32_t round, uint32_t time_ms) {
    masters_[rank].say(protocol::Probe{round, id(1 - rank), time_ms});
  }
  // The next report; it tells what else this peer says.
  protocol::ProbeReport report(size_t rank) {
    while (true) {
      const protocol::Message message = masters_[rank].hear();
      if (const auto* report = std::get_if<protocol::ProbeReport>(&message)) return *report;
      EXPECT_FALSE(std::holds_alternative<protocol::Leave>(message));
      if (std::holds_alternative<protocol::Leave>(message)) return {};
    }
  }

 private:
  void admit() {
    std::array<uint16_t, 2> ports{};
    for (size_t rank = 0; rank < 2; ++rank) {
      masters_[rank].answer_the_phone();
      masters_[rank].hear_a<protocol::Hello>();
      masters_[rank].say(protocol::Welcome{id(rank), 7, 1, "127.0.0.1", true});
      ports[rank] = masters_[rank].hear_a<protocol::Register>().port;
    }
    masters_[0].say(protocol::Dial{id(1), "127.0.0.1", ports[1]});
    masters_[0].hear_a<protocol::LinkReport>();
    const Epoch epoch{(uint64_t{1} << 32) | 1};
    for (ByHand& master : masters_) {
      master.say(protocol::EpochStart{
          epoch, epoch, {{id(0), "here"}, {id(1), "there"}}, {0, 1}, {id(0), id(1)}, {}, 1, {}});
    }
  }
  std::array<ByHand, 2> masters_;
  std::array<std::unique_ptr<Peer>, 2> peers_;
};

TEST(Control, AProbeMeasuresALinkInBothDirections) {
  Pair pair;
  for (uint32_t round = 1; round <= 2; ++round) {
    for (size_t rank = 0; rank < 2; ++rank) pair.probe(rank, round, 200);
    for (size_t rank = 0; rank < 2; ++rank) {
      const protocol::ProbeReport report = pair.report(rank);
      EXPECT_EQ(report.round, round);
      EXPECT_EQ(report.peer, Pair::id(1 - rank));
      EXPECT_GT(report.bytes, uint64_t{1} << 20);
      EXPECT_GT(report.milliseconds, 0u);
    }
  }
  // The peer loop has nothing to do for a probe any more.
  const auto data = pair.peer(0).info().data;
  EXPECT_EQ(data.engine.operations_open, 0u);
}

TEST(Control, AProbeThatOneEndWasNotToldOfMeasuresNothing) {
  Pair pair;
  pair.probe(0, 1, 100);
  EXPECT_EQ(pair.report(0).bytes, 0u);
  for (size_t rank = 0; rank < 2; ++rank) pair.probe(rank, 2, 100);
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_GT(pair.report(rank).bytes, 0u);
}

TEST(Control, LeavingWaitsForNobodyForEver) {
  ByHand master;
  std::thread thread([&] {
    master.admit();
    master.hear_a<protocol::Begin>();
  });
  auto peer = std::move(join(master).value());
  Outcome outcome;
  peer->post(request(protocol::OpKind::kBarrier, 0), {}, outcome.completion());
  thread.join();
  // The master receives Leave but does not answer.
  peer->leave(std::chrono::milliseconds(100));
  EXPECT_EQ(outcome.wait().message.substr(0, 7), "barrier");
  Outcome late;
  peer->post(request(protocol::OpKind::kBarrier, 0), {}, late.completion());
  EXPECT_EQ(late.wait().message, "this process has left the run");
}

}  // namespace
}  // namespace pccl::peer
