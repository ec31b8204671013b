#include "master/shell/invitation.h"

#include <gtest/gtest.h>

#include <future>

#include "master/shell/meetings.h"
#include "master/shell/proofs.h"
#include "master/shell/shell.h"
#include "tests/cpp/net/net_test.h"

namespace pccl::master {
namespace {

using net::HandleKey;

constexpr const char* kInvited = "5f1c03aa5f1c03aa";

std::shared_ptr<const HandleKey> a_key() {
  return std::make_shared<const HandleKey>(net::make_handle_key());
}

bool has(const std::string& answer, const std::string& part) {
  return answer.find(part) != std::string::npos;
}

// A master whose group waits for its call, and another process that invites it.
class InvitationTest : public testing::Test {
 protected:
  InvitationTest() {
    Tokens tokens;
    tokens.handles = true;
    shell = std::move(
        Shell::open({"127.0.0.1", 0}, {}, {}, protocol::kSpoken, std::move(tokens)).value());
    shell->with_meetings([this](Meetings& all) { all.open(kInvited, key); });
  }
  ~InvitationTest() override {
    net::on(loop, [this] { return invitation.reset(), 0; });
  }
  // Invites the process of this handle, and returns the answer.
  std::string invite(const protocol::ReconfigureHandle& to, const HandleKey* proven) {
    protocol::Hello hello;
    hello.run = Rendezvous::run_name("aa", 7);
    hello.join_timeout_ms = 60'000;
    hello.rendezvous = {7, {{{"10.0.0.1", 4000}, "aa", 1, own->shown}, to}, 1, {}, true};
    net::on(loop, [&] {
      const auto dial = [this, to, proven](net::Socket socket, Instant by) {
        return proofs.dial(std::move(socket), to, proven, by);
      };
      invitation = std::make_unique<Invitation>(
          loop, hello, to.at, std::chrono::seconds(30), dial,
          Invitation::Callbacks{
              .on_declined = [this](const auto& why) { answer.set_value(why.text); },
              .on_unreachable =
                  [this](const auto& why) { answer.set_value("lost: " + why.message); }});
      return 0;
    });
    auto future = answer.get_future();
    const bool there = future.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
    return there ? future.get() : "nothing";
  }
  protocol::ReconfigureHandle handle(uint64_t generation) const {
    return {{"127.0.0.1", shell->port()}, kInvited, generation, key == nullptr ? "" : key->shown};
  }

  std::shared_ptr<const HandleKey> key = a_key();
  const std::shared_ptr<const HandleKey> own = a_key();
  std::unique_ptr<Shell> shell;
  net::Loop loop{"invitation"};
  const Proofs proofs{{}, true};
  std::unique_ptr<Invitation> invitation;
  std::promise<std::string> answer;
};

TEST_F(InvitationTest, ReachesTheProcessThatHasMadeTheHandle) {
  EXPECT_PRED2(has, invite(handle(2), own.get()), "was used before");
}

TEST_F(InvitationTest, AProcessThatShowsTheHandleOfAnotherIsRefused) {
  const auto stranger = a_key();
  EXPECT_PRED2(has, invite(handle(1), stranger.get()), "is that of another process");
}

TEST_F(InvitationTest, InPlainTextNobodyIsHeard) {
  EXPECT_PRED2(has, invite(handle(1), nullptr),
               "admits only peers that prove the key of their handle");
}

TEST_F(InvitationTest, AProcessThatHasNotMadeTheHandleIsRecognized) {
  protocol::ReconfigureHandle other = handle(1);
  other.key = a_key()->shown;
  EXPECT_PRED2(has, invite(other, own.get()), "does not prove that it has made its handle");
}

TEST_F(InvitationTest, AHandleThatWasUsedLeadsToItsProcess) {
  const protocol::ReconfigureHandle used = handle(1);
  const Rendezvous::Call call{
      8, {used}, 0, monotonic_now() + std::chrono::minutes(1), std::chrono::seconds(1)};
  shell->with_meetings([&](Meetings& all) {
    all.call(kInvited, call, {});
    key = a_key();
    all.over(kInvited, {}, key);
  });
  EXPECT_PRED2(has, invite(used, own.get()), "was used before");
}

}  // namespace
}  // namespace pccl::master
