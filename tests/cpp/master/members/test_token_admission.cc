#include "master/members/token_admission.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"
#include "tests/cpp/master/keyring_lines.h"

namespace pccl::master {
namespace {

const Holder kAliceHolds{"alice000", "alice"};

class TokenAdmissionTest : public testing::Test {
 protected:
  TokenAdmissionTest() {
    add("alice000", "alice", {});
    add("bob00000", "bob", {"night", "day"});
  }
  void add(const TokenId& id, const std::string& name, std::vector<std::string> runs) {
    keyring.emplace(id, Token{name, std::move(runs), *Secret::from_hex(secret_hex("a5"))});
  }
  std::string refusal(const Holder& holder, const std::string& run,
                      std::optional<size_t> connections = 1, Role role = Role::kPeer) const {
    const auto reject = refuse_token(holder, keyring, run, role, connections);
    return reject ? reject->text : "";
  }
  Keyring keyring;
};

TEST_F(TokenAdmissionTest, AKnownTokenHasAKeyAndAHolder) {
  const auto key = key_of("alice000", keyring);
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(key->bytes, net::control_key(keyring.at("alice000").secret.bytes()).bytes);
  EXPECT_EQ(holder_of("alice000", keyring), kAliceHolds);
  EXPECT_FALSE(key_of("mallory0", keyring).has_value());
  EXPECT_FALSE(holder_of("mallory0", keyring).has_value());
}

TEST_F(TokenAdmissionTest, ATokenIsForAllRunsOrForSome) {
  EXPECT_EQ(refusal(kAliceHolds, "noon"), "");
  const Holder bob{"bob00000", "bob"};
  EXPECT_EQ(refusal(bob, "day"), "");
  EXPECT_EQ(refusal(bob, "noon"),
            "the token bob00000 of \"bob\" is for other runs: ask the owner of the master for one "
            "of this run (`pccl token new`)");
  EXPECT_EQ(refuse_token(bob, keyring, "noon", Role::kPeer, 1)->code, Code::kAuthentication);
}

TEST_F(TokenAdmissionTest, AnObserverIsNoPeerAndAPeerMayObserve) {
  keyring.at("bob00000").role = Role::kObserver;
  const Holder bob{"bob00000", "bob"};
  EXPECT_EQ(refusal(bob, "night"),
            "the token bob00000 of \"bob\" is that of an observer: it may show a run (`pccl "
            "status`), and no peer may join with it. Ask the owner of the master for the token of "
            "a peer (`pccl token new`)");
  EXPECT_EQ(refuse_token(bob, keyring, "night", Role::kPeer, 1)->code, Code::kAuthentication);
  EXPECT_EQ(refusal(bob, "night", 1, Role::kObserver), "");
  EXPECT_TRUE(refusal(bob, "noon", 1, Role::kObserver).ends_with("of this run (`pccl token new`)"));
  EXPECT_EQ(refusal(kAliceHolds, "noon", 1, Role::kObserver), "");
}

TEST_F(TokenAdmissionTest, ARevokedTokenLetsNoPeerIn) {
  keyring.erase("alice000");
  EXPECT_EQ(refusal(kAliceHolds, "noon"), "the token alice000 was revoked");
}

TEST_F(TokenAdmissionTest, ATokenHasALimitOfConnectionsUnlessAllShareIt) {
  constexpr size_t kMost = protocol::kConnectionsPerTokenMax;
  EXPECT_EQ(refusal(kAliceHolds, "noon", kMost), "");
  EXPECT_EQ(refusal(kAliceHolds, "noon", kMost + 1),
            "the token alice000 of \"alice\" has 256 connections to this master, and at most 256 "
            "are allowed: give each person or machine a token of its own");
  EXPECT_EQ(refuse_token(kAliceHolds, keyring, "noon", Role::kPeer, kMost + 1)->code,
            Code::kInvalidState);
  EXPECT_EQ(refusal(kAliceHolds, "noon", std::nullopt), "");
}

TEST(TokenAdmission, APeerWithoutATokenIsRefused) {
  EXPECT_EQ(needs_token().code, Code::kAuthentication);
  EXPECT_NE(needs_token().text.find("PCCL_SECRET_FILE"), std::string::npos);
}

TEST(TokenAdmission, APeerComesBackWithATokenOfItsName) {
  const PeerId peer{7};
  EXPECT_FALSE(refuse_return(peer, kAliceHolds, kAliceHolds).has_value());
  EXPECT_FALSE(refuse_return(peer, kAliceHolds, Holder{"alice001", "alice"}).has_value());
  const auto other = refuse_return(peer, kAliceHolds, Holder{"bob00000", "bob"});
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->text, "peer " + text(peer) + " came with a token of another name");
  EXPECT_EQ(other->code, Code::kAuthentication);
}

TEST(TokenAdmission, APeerThatCameWithoutATokenMayShowOneNow) {
  EXPECT_FALSE(refuse_return({7}, {}, {}).has_value());
  EXPECT_FALSE(refuse_return({7}, {}, kAliceHolds).has_value());
}

TEST(TokenAdmission, AMasterWithoutItsKeyringTakesBackNoPeerThatCameWithAToken) {
  const auto refusal = refuse_return({7}, kAliceHolds, {});
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->text, "peer " + text(PeerId{7}) +
                               " came with a token, and this master was started again without a "
                               "keyring: start it with --keyring");
}

}  // namespace
}  // namespace pccl::master
