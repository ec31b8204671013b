#include "master/shell/meetings.h"

#include <gtest/gtest.h>

#include "csrc/base/mutex.h"
#include "csrc/protocol/codec.h"
#include "tests/cpp/net/net_test.h"

namespace pccl::master {
namespace {

using protocol::Reject;

constexpr const char* kGroup = "5f1c03aa5f1c03aa";
constexpr uint64_t kGuest = 7;

// Connections that only write down what happens to them.
class MeetingsTest : public testing::Test {
 protected:
  MeetingsTest() {
    on_loop([this] {
      meetings = std::make_unique<Meetings>(
          loop, Meetings::Callbacks{
                    .add_key = [](const Meetings::Key&) {},
                    .send = [this](ConnectionId, const auto& message) { note(name(message)); },
                    .admit = [this](ConnectionId, const auto& hello) { note("in " + hello.run); },
                    .receive = [this](ConnectionId, const auto& message) { note(name(message)); },
                    .refuse = [this](ConnectionId, const std::string&,
                                     const Reject& why) { note("refused: " + why.text); },
                    .end = [this](const std::string& run,
                                  const Reject& why) { note("end of " + run + ": " + why.text); },
                    .regroup =
                        [this](const std::string& run, const RegroupAgreed& agreed) {
                          note("regroup of " + run);
                          for (const ConnectionId id : agreed.members)
                            note("member " + std::to_string(id.value));
                        },
                    .dial = [](net::Socket socket, const auto&, const auto*,
                               Instant) { return net::Channel(std::move(socket)); },
                    .on_stepped = [] {},
                });
      meetings->open(kGroup, nullptr);
      auto made = net::Listener::open(loop, {"127.0.0.1", 0}, [this](net::Socket socket) {
        invitations.push_back(std::make_unique<net::Stream>(
            loop, net::Channel(std::move(socket)),
            net::Stream::Callbacks{
                .on_bytes = [this](std::span<const std::byte> bytes) { hear(bytes); },
                .on_closed = [this](const Status&) { note("dismissed"); }}));
      });
      listener = std::move(made.value());
      other.at.port = listener->port();
    });
  }
  ~MeetingsTest() override {
    on_loop([this] {
      meetings.reset();
      invitations.clear();
      listener.reset();
    });
  }
  // The master of the other process receives these bytes.
  void hear(std::span<const std::byte> bytes) {
    protocol::Decoder decoder;
    decoder.feed(bytes);
    const auto message = decoder.next().value();
    const auto* const hello = message ? std::get_if<protocol::Hello>(&*message) : nullptr;
    if (hello == nullptr || !hello->rendezvous->invites) return note("it is no invitation");
    note("invited as rank " + std::to_string(hello->rendezvous->rank));
  }
  void answer(const protocol::Message& message) {
    std::vector<std::byte> bytes;
    protocol::encode(message, bytes);
    on_loop([&] { invitations.at(0)->send(bytes); });
  }
  void on_loop(const std::function<void()>& task) {
    net::on(loop, [&] { return task(), 0; });
  }
  static std::string name(const protocol::Message& message) { return protocol::name(message); }

  protocol::Rendezvous rendezvous() const {
    return {7, {{{"10.0.0.1", 4000}, kGroup, 1}, other}, 1, {}};
  }
  void arrive(Duration timeout) {
    protocol::Hello hello;
    hello.run = Rendezvous::run_name(kGroup, 7);
    hello.join_timeout_ms = static_cast<uint32_t>(timeout / std::chrono::milliseconds(1));
    hello.settings.peer_timeout = protocol::kPeerTimeoutMin;
    hello.rendezvous = rendezvous();
    on_loop([&] { meetings->arrive({kGuest}, hello); });
  }
  void call() {
    const Instant until = monotonic_now() + std::chrono::minutes(1);
    const Rendezvous::Call call{7, rendezvous().handles, 0, until, silence};
    on_loop([&] { meetings->call(kGroup, call, {}); });
  }
  void note(const std::string& what) {
    const Lock lock(mutex);
    seen.push_back(what);
    changed.notify_all();
  }
  // Waits until something begins with this text, and returns it.
  std::string wait_for(const std::string& begin) {
    Lock lock(mutex);
    const Instant until = monotonic_now() + std::chrono::seconds(30);
    while (true) {
      for (const std::string& what : seen)
        if (what.starts_with(begin)) return what;
      if (!changed.wait_until(lock, until)) return "(nothing)";
    }
  }

  net::Loop loop{"meetings"};
  protocol::ReconfigureHandle other{{"127.0.0.1", 0}, "aa", 1};
  Duration silence = std::chrono::minutes(1);
  std::unique_ptr<net::Listener> listener;  // of the master of the other process
  std::vector<std::unique_ptr<net::Stream>> invitations;
  std::unique_ptr<Meetings> meetings;
  Mutex mutex;
  Condition changed;
  std::vector<std::string> seen PCCL_GUARDED_BY(mutex);
};

TEST_F(MeetingsTest, APeerThatWaitsGetsPingsAndThenWhatItHasSentMeanwhile) {
  arrive(std::chrono::minutes(1));
  EXPECT_EQ(wait_for("Ping"), "Ping");
  on_loop([this] {
    meetings->receive({kGuest}, protocol::Pong{});
    meetings->receive({kGuest}, protocol::Register{});
    EXPECT_TRUE(meetings->waits({kGuest}));
  });
  call();
  EXPECT_EQ(wait_for("Register"), "Register");
  const Lock lock(mutex);
  std::erase_if(seen, [](const std::string& one) { return one.starts_with("invited"); });
  EXPECT_EQ(seen[seen.size() - 2], "in reconfigure 5f1c03aa5f1c03aa 7");
}

TEST_F(MeetingsTest, AMemberGetsAnAnswerAndKeepsItsConnection) {
  const std::string run = Rendezvous::run_name(kGroup, 6);
  for (int times = 0; times < 2; ++times) {
    on_loop([&] { EXPECT_TRUE(meetings->offer({kGuest}, run, 1, {rendezvous(), 60'000}).ok()); });
    EXPECT_EQ(wait_for("Regrouped"), "Regrouped") << "this process hosts no run";
  }
}

// The processes of kGroup and of `other` have met. The latter is the guest.
TEST_F(MeetingsTest, AMemberAnnouncesOneCallAtATime) {
  arrive(std::chrono::minutes(1));
  call();
  protocol::Rendezvous first = rendezvous();
  on_loop([&] {
    meetings->begun(Rendezvous::run_name(kGroup, 7));
    meetings->over(kGroup, std::nullopt, nullptr);
    first.uuid = 8;
    first.handles[0].generation = 2;
    const std::string run = Rendezvous::run_name(kGroup, 7);
    EXPECT_TRUE(meetings->offer({kGuest}, run, 1, {first, 60'000}).ok());
    first.uuid = 9;
    EXPECT_EQ(meetings->offer({kGuest}, run, 1, {first, 60'000}).code, Code::kProtocol);
    first.refusal = "it has given up the call";
    EXPECT_TRUE(meetings->offer({kGuest}, run, 1, {first, 60'000}).ok());
  });
  EXPECT_EQ(wait_for("Regrouped"), "Regrouped");
}

TEST_F(MeetingsTest, APeerThatSendsMoreThanItMayIsRefused) {
  arrive(std::chrono::minutes(1));
  on_loop([this] {
    for (int i = 0; i < 2; ++i) meetings->receive({kGuest}, protocol::Register{});
  });
  EXPECT_EQ(wait_for("refused"), "refused: it does not wait for its admission");
}

TEST_F(MeetingsTest, APeerIsRefusedWhenItsTimeIsOver) {
  arrive(std::chrono::milliseconds(30));
  EXPECT_TRUE(wait_for("refused").starts_with("refused: reconfigure (uuid 7): timed out"));
  on_loop([this] { EXPECT_FALSE(meetings->waits({kGuest})); });
}

TEST_F(MeetingsTest, AProcessThatIsGoneEndsTheCall) {
  on_loop([this] { listener.reset(); });
  call();
  EXPECT_TRUE(wait_for("end").ends_with(
      "connection refused): its process has ended, or its port cannot be reached from rank 0"))
      << wait_for("end");
}

TEST_F(MeetingsTest, AProcessThatIsSilentEndsTheCall) {
  silence = protocol::kPeerTimeoutMin;
  call();
  EXPECT_NE(wait_for("end").find("is not there (no answer for 100 ms)"), std::string::npos)
      << wait_for("end");
}

TEST_F(MeetingsTest, TheReasonOfALossAfterTheAdmissionComesFromTheInvitedMaster) {
  call();
  EXPECT_EQ(wait_for("invited"), "invited as rank 1");
  arrive(std::chrono::minutes(1));
  on_loop([this] {
    meetings->closed({kGuest});
    meetings->finish_turn();
  });
  answer(protocol::Ping{});
  answer(Reject{Code::kPeerLost, "reconfigure (uuid 7): it has ended its call"});
  EXPECT_EQ(wait_for("end"),
            "end of reconfigure 5f1c03aa5f1c03aa 7: reconfigure (uuid 7): it has ended its call");
  EXPECT_EQ(wait_for("dismissed"), "dismissed");
}

TEST_F(MeetingsTest, AnInvitationEndsWhenTheRunHasBegun) {
  call();
  EXPECT_EQ(wait_for("invited"), "invited as rank 1");
  arrive(std::chrono::minutes(1));
  on_loop([this] { meetings->begun(Rendezvous::run_name(kGroup, 7)); });
  EXPECT_EQ(wait_for("dismissed"), "dismissed");
}

}  // namespace
}  // namespace pccl::master
