#include "csrc/watch/shell/watch_end.h"

#include <gtest/gtest.h>

#include <future>

#include "csrc/net/keys.h"

namespace pccl::watch {
namespace {

using protocol::Message;

const std::string kTokenText = "pccl1.k3v9x2mq7a1p.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

// A master that the test plays by hand: it answers each message with these bytes.
class WatchEndTest : public testing::Test {
 protected:
  ~WatchEndTest() override {
    on_loop([this] {
      end_.reset();
      stream_.reset();
      listener_.reset();
    });
  }
  void serve(const std::vector<Message>& answer, bool secured = false) {
    for (const Message& one : answer) protocol::encode(one, answer_);
    on_loop([this, secured] {
      auto made = net::Listener::open(loop_, {"127.0.0.1", 0}, [this, secured](net::Socket socket) {
        accept(std::move(socket), secured);
      });
      ASSERT_TRUE(made.ok()) << made.status().message;
      listener_ = std::move(made.value());
      port_ = listener_->port();
    });
  }
  // What the observer shows until it ends.
  std::string watch(const std::string& token = "", Plan plan = {"night", std::nullopt}) {
    std::promise<void> over;
    std::string shown;
    on_loop([&] {
      WatchEnd::Options options{{"127.0.0.1", port_}, std::nullopt, false};
      if (!token.empty()) options.token = std::move(parse_token(token).value());
      end_ = std::make_unique<WatchEnd>(
          loop_, std::move(plan), std::move(options),
          WatchEnd::Callbacks{[&](const std::string& snapshot) { shown += snapshot + "\n"; },
                              [&](const Over& how) {
                                shown += how.why;
                                ending = how.ending;
                                over.set_value();
                              }});
    });
    if (over.get_future().wait_for(std::chrono::seconds(30)) != std::future_status::ready)
      return "(no end)";
    return shown;
  }
  void on_loop(const std::function<void()>& task) {
    std::promise<void> done;
    loop_.post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  Ending ending = Ending::kDone;
  std::vector<Message> heard;
  uint16_t port_ = 1;  // nobody listens there

 private:
  static net::Channel encrypted(net::Socket socket) {
    const auto key = [](std::string_view) {
      return std::optional(net::control_key(parse_token(kTokenText).value().secret.bytes()));
    };
    return {std::move(socket), net::Tls::accept(key), monotonic_now() + std::chrono::seconds(10)};
  }
  void accept(net::Socket socket, bool secured) {
    net::Channel channel = secured ? encrypted(std::move(socket)) : net::Channel(std::move(socket));
    stream_ = std::make_unique<net::Stream>(
        loop_, std::move(channel),
        net::Stream::Callbacks{.on_bytes =
                                   [this](std::span<const std::byte> bytes) {
                                     decoder_.feed(bytes);
                                     auto next = decoder_.next();
                                     // Also to bytes that are no message: to a handshake.
                                     if (next.ok() && next.value()) heard.push_back(*next.value());
                                     stream_->send(answer_);
                                   },
                               .on_closed = [](const Status&) {}});
  }

  net::Loop loop_{"watch"};
  std::vector<std::byte> answer_;
  std::unique_ptr<net::Listener> listener_;
  std::unique_ptr<net::Stream> stream_;
  protocol::Decoder decoder_;
  std::unique_ptr<WatchEnd> end_;
};

TEST_F(WatchEndTest, ASnapshotInPlainText) {
  serve({protocol::Snapshot{"{\"schema\"", false}, protocol::Snapshot{":1}", true}});
  EXPECT_EQ(watch(), "{\"schema\":1}\n");
  EXPECT_EQ(ending, Ending::kDone);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(std::get<protocol::Watch>(heard[0]).run, "night");
}

TEST_F(WatchEndTest, AProofOfTheTokenComesFirst) {
  serve({protocol::Snapshot{"{}", true}}, true);
  EXPECT_EQ(watch(kTokenText), "{}\n");
  EXPECT_EQ(ending, Ending::kDone);
}

TEST_F(WatchEndTest, AMasterInPlainTextDoesNotGetTheToken) {
  serve({protocol::Snapshot{"{}", true}});
  EXPECT_NE(watch(kTokenText).find("speaks plain text, so it did not get the token k3v9x2mq7a1p"),
            std::string::npos);
  EXPECT_EQ(ending, Ending::kToken);
}

TEST_F(WatchEndTest, NobodyListens) {
  EXPECT_NE(watch().find("127.0.0.1:1"), std::string::npos);
  EXPECT_EQ(ending, Ending::kNoMaster);
}

}  // namespace
}  // namespace pccl::watch
