#include "csrc/probe/shell/greeting.h"

#include <future>
#include <list>
#include <vector>

#include "csrc/net/stream.h"
#include "csrc/protocol/codec.h"
#include "csrc/protocol/version.h"
#include "tests/cpp/net/net_test.h"
#include "tests/cpp/net/tls_test.h"

namespace pccl::probe {
namespace {

using GreetingEnding = Greeting::Ending;

constexpr auto kPatience = std::chrono::seconds(20);
constexpr auto kLimit = std::chrono::milliseconds(500);
constexpr uint8_t kSecret = 7;

// A master that sends the same bytes to everybody, or nothing. It may ask for the token kAlice.
class FakeMaster {
 public:
  explicit FakeMaster(net::Bytes answer, bool is_secured = false, bool closes = false)
      : answer_(std::move(answer)), is_secured_(is_secured), closes_(closes) {
    port = net::on(loop_, [&] {
      auto opened = net::Listener::open(loop_, {"127.0.0.1", 0},
                                        [this](net::Socket socket) { accept(std::move(socket)); });
      listener_ = std::move(opened.value());
      return listener_->port();
    });
  }
  ~FakeMaster() {
    net::on(loop_, [&] {
      streams_.clear();
      listener_.reset();
      return 0;
    });
  }

  uint16_t port = 0;
  std::vector<protocol::Hello> hellos() {
    return net::on(loop_, [&] { return hellos_; });
  }
  std::vector<protocol::DialBack> questions() {
    return net::on(loop_, [&] { return questions_; });
  }
  size_t bytes() {  // that came from all
    return net::on(loop_, [&] { return bytes_; });
  }

 private:
  void accept(net::Socket socket) {
    if (closes_) return;
    net::Channel channel = is_secured_ ? net::Channel(std::move(socket), net::an_acceptor(kSecret),
                                                      monotonic_now() + kPatience)
                                       : net::Channel(std::move(socket));
    auto& decoder = decoders_.emplace_back();
    streams_.push_back(std::make_unique<net::Stream>(
        loop_, std::move(channel),
        net::Stream::Callbacks{
            .on_bytes = [this, &decoder, at = streams_.size()](
                            auto received) { heard(decoder, *streams_.at(at), received); },
            .on_closed = [](const Status&) {}}));
  }
  void heard(protocol::Decoder& decoder, net::Stream& stream, std::span<const std::byte> received) {
    bytes_ += received.size();
    decoder.feed(received);
    auto next = decoder.next();
    if (!next.ok() || !next.value()) return;
    if (const auto* hello = std::get_if<protocol::Hello>(&*next.value())) hellos_.push_back(*hello);
    if (const auto* asked = std::get_if<protocol::DialBack>(&*next.value()))
      questions_.push_back(*asked);
    stream.send(answer_);
  }

  const net::Bytes answer_;
  const bool is_secured_, closes_;
  net::Loop loop_{"master"};
  std::unique_ptr<net::Listener> listener_;
  std::list<protocol::Decoder> decoders_;
  std::vector<std::unique_ptr<net::Stream>> streams_;
  std::vector<protocol::Hello> hellos_;
  std::vector<protocol::DialBack> questions_;
  size_t bytes_ = 0;
};

net::Bytes a_reject(Code code, const std::string& why) {
  net::Bytes bytes;
  protocol::encode(protocol::Message(protocol::Reject{code, why}), bytes);
  return bytes;
}

net::Bytes of_no_name() { return a_reject(Code::kInvalidArgument, "the name is empty"); }

std::pair<std::string, net::Key> a_token(uint8_t secret, const std::string& id = net::kAlice) {
  return {id, net::key_of(secret)};
}

Greeting::Outcome greet(uint16_t port, Greeting::Options options = {}) {
  options.at_most = kLimit;
  std::promise<Greeting::Outcome> ended;
  net::Loop loop("doctor");
  std::unique_ptr<Greeting> greeting;
  net::on(loop, [&] {
    greeting = std::make_unique<Greeting>(
        loop, Endpoint{"127.0.0.1", port}, std::move(options),
        [&ended](const Greeting::Outcome& outcome) { ended.set_value(outcome); });
    return 0;
  });
  auto outcome = ended.get_future();
  EXPECT_EQ(outcome.wait_for(kPatience), std::future_status::ready);
  net::on(loop, [&] { return greeting.reset(), 0; });
  return outcome.get();
}

TEST(Greeting, IsRefusedByAMasterThatSpeaksItsVersion) {
  FakeMaster master(of_no_name());
  const Greeting::Outcome outcome = greet(master.port);
  EXPECT_EQ(outcome.ending, GreetingEnding::kAnswered) << outcome.why;
  EXPECT_EQ(outcome.reject.code, Code::kInvalidArgument);
  EXPECT_EQ(outcome.reject.text, "the name is empty");
  EXPECT_GT(outcome.rtt, Duration{0});
  ASSERT_EQ(master.hellos().size(), 1u);
  EXPECT_EQ(master.hellos()[0].run, "") << "with a name, it would make a run";
  EXPECT_EQ(master.hellos()[0].versions, protocol::kSpoken);
}

TEST(Greeting, HasAsManyBytesMoreAsItIsTold) {
  FakeMaster master(of_no_name());
  EXPECT_EQ(greet(master.port).ending, GreetingEnding::kAnswered);
  const size_t small = master.bytes();
  EXPECT_EQ(greet(master.port, {.token = {}, .padding = 6000}).ending, GreetingEnding::kAnswered);
  EXPECT_EQ(master.bytes(), small + small + 6000);
  EXPECT_EQ(master.hellos().at(0), master.hellos().at(1));
}

net::Bytes a_result(uint64_t unix_ms) {
  protocol::DialedBack result;
  result.host = "10.0.0.7";
  result.unix_ms = unix_ms;
  net::Bytes bytes;
  protocol::encode(protocol::Message(result), bytes);
  return bytes;
}

TEST(Greeting, AsksWhetherTheMasterCanConnect) {
  constexpr Duration kBehind = std::chrono::seconds(90);
  const auto there = unix_now() - std::chrono::duration_cast<std::chrono::milliseconds>(kBehind);
  FakeMaster master(a_result(static_cast<uint64_t>(there.count())));
  const Greeting::Outcome outcome = greet(master.port, {.token = {}, .dial_back = 40001});
  EXPECT_EQ(outcome.ending, GreetingEnding::kAnswered) << outcome.why;
  ASSERT_TRUE(outcome.dialed);
  EXPECT_EQ(outcome.dialed->host, "10.0.0.7");
  EXPECT_LE(outcome.ahead, -kBehind + kLimit);
  EXPECT_GE(outcome.ahead, -kBehind - 2 * kLimit);
  EXPECT_TRUE(master.hellos().empty());
  ASSERT_EQ(master.questions().size(), 1u);
  EXPECT_EQ(master.questions()[0].port, 40001);
}

TEST(Greeting, AClockThatIsAbsurdIsNoError) {
  FakeMaster master(a_result(~uint64_t{0}));
  EXPECT_GT(greet(master.port, {.token = {}, .dial_back = 0}).ahead, std::chrono::hours(24));
}

TEST(Greeting, AResultThatNobodyAskedForIsOfNoMaster) {
  FakeMaster master(a_result(0));
  EXPECT_EQ(greet(master.port).ending, GreetingEnding::kNoMaster);
}

TEST(Greeting, ProvesItsToken) {
  FakeMaster master(of_no_name(), true);
  EXPECT_EQ(greet(master.port, {.token = a_token(kSecret)}).ending, GreetingEnding::kAnswered);
  EXPECT_EQ(greet(master.port, {.token = a_token(kSecret), .padding = 6000}).ending,
            GreetingEnding::kAnswered);
  EXPECT_EQ(greet(master.port, {.token = a_token(kSecret + 1)}).ending,
            GreetingEnding::kWrongSecret);
  EXPECT_EQ(greet(master.port, {.token = a_token(kSecret, "bob-laptop")}).ending,
            GreetingEnding::kUnknownToken);
}

TEST(Greeting, NoticesAMasterWithoutAKeyring) {
  FakeMaster master(of_no_name());
  const auto outcome = greet(master.port, {.token = a_token(kSecret)});
  EXPECT_NE(outcome.ending, GreetingEnding::kAnswered);
  EXPECT_TRUE(master.hellos().empty()) << "nothing is said before the proof";
}

TEST(Greeting, WaitsNoLongerThanItIsTold) {
  FakeMaster master({});
  EXPECT_EQ(greet(master.port).ending, GreetingEnding::kSilent);
  EXPECT_EQ(master.hellos().size(), 1u);
}

TEST(Greeting, TellsAClosedPortFromAClosedConnection) {
  EXPECT_EQ(greet(net::free_port()).ending, GreetingEnding::kRefused);
  FakeMaster master({}, false, true);
  EXPECT_EQ(greet(master.port).ending, GreetingEnding::kClosed);
}

TEST(Greeting, NoticesAnotherProgram) {
  FakeMaster http(net::raw_bytes("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
  EXPECT_EQ(greet(http.port).ending, GreetingEnding::kNoMaster);
  net::Bytes welcome;
  protocol::encode(protocol::Message(protocol::Pong{}), welcome);
  FakeMaster odd(welcome);
  EXPECT_EQ(greet(odd.port).why, "it has answered with Pong");
}

}  // namespace
}  // namespace pccl::probe
