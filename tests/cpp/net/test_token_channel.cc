#include "csrc/net/token_channel.h"

#include <gtest/gtest.h>

#include "tests/cpp/net/net_test.h"

namespace pccl::net {
namespace {

const Endpoint kMaster{"10.0.0.1", 48148};

Token some_token() {
  return std::move(
      parse_token("pccl1.k3v9x2mq7a1p.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8").value());
}

bool contains(const Status& status, const std::string& text) {
  return status.message.find(text) != std::string::npos;
}

TEST(TokenChannel, WithoutATokenPlainTextStaysOnLoopback) {
  const auto [one, other] = connected_fds();
  const Socket kept(other);
  const auto near = channel_to_master(Socket(one), kMaster, nullptr, false, Instant{});
  ASSERT_TRUE(near.ok());
  EXPECT_FALSE(near.value().encrypted());
  const auto far = channel_to_master(Socket(), kMaster, nullptr, false, Instant{});
  ASSERT_FALSE(far.ok());
  EXPECT_EQ(far.status().code, Code::kAuthentication);
  EXPECT_TRUE(
      contains(far.status(), "this process has no token, and the master at 10.0.0.1:48148"));
  EXPECT_TRUE(channel_to_master(Socket(), kMaster, nullptr, true, Instant{}).ok());
}

TEST(TokenChannel, ATokenIsProvenToEveryMaster) {
  const Token token = some_token();
  for (const bool insecure : {false, true}) {
    const auto channel = channel_to_master(Socket(), kMaster, &token, insecure, Instant{});
    ASSERT_TRUE(channel.ok());
    EXPECT_TRUE(channel.value().encrypted());
    EXPECT_EQ(channel.value().identity(), "k3v9x2mq7a1p");
  }
}

TEST(TokenChannel, ARefusedTokenHasARemedy) {
  const auto explained = [](Tls::Refusal refusal) {
    const Status why{Code::kAuthentication, "bad record", {}};
    const Status status = explain_handshake(why, refusal, kMaster, "k3v9x2mq7a1p");
    EXPECT_EQ(status.code, Code::kAuthentication);
    EXPECT_TRUE(status.message.starts_with("the master at 10.0.0.1:48148 "));
    EXPECT_TRUE(contains(status, "the token k3v9x2mq7a1p"));
    // Nothing proves an alert before the handshake is complete.
    EXPECT_EQ(contains(status, ", or somebody on the path has forged this answer. "),
              refusal != Tls::Refusal::kOther);
    return status;
  };
  EXPECT_TRUE(contains(explained(Tls::Refusal::kUnknownIdentity), "it was revoked, or another"));
  EXPECT_TRUE(contains(explained(Tls::Refusal::kWrongKey), "has another secret for the token"));
  EXPECT_TRUE(contains(explained(Tls::Refusal::kPlainText), "speaks plain text, so it did not"));
  EXPECT_TRUE(contains(explained(Tls::Refusal::kOther), "somebody is in between (bad record)"));
}

TEST(TokenChannel, OtherFailuresStayAsTheyAre) {
  const Status why{Code::kSystem, "connection reset", {}};
  const Status same = explain_handshake(why, Tls::Refusal::kOther, kMaster, "k3v9x2mq7a1p");
  EXPECT_EQ(same.code, Code::kSystem);
  EXPECT_EQ(same.message, "connection reset");
}

}  // namespace
}  // namespace pccl::net
