// The keys that the master of a secured run hands out.

#include "csrc/net/keys.h"

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::Key;

const Key kSeed{{1, 2, 3, 4}}, kNextSeed{{5, 6, 7, 8}};

struct KeysTest : testing::Test {
  // The key that the acceptor of this credential computes from its identity.
  Key expected(const protocol::LaneIdentity& identity, const Key& accepting) const {
    return net::lane_key(accepting, kRunId, identity);
  }
  Harness h{protocol::kSpoken.highest, kSeed};
};

TEST_F(KeysTest, EachPeerHasAnAcceptingKeyOfItsOwn) {
  h.found({"a", "b"});
  const Key a = *h.last<protocol::Welcome>("a")->accepting;
  EXPECT_EQ(a, net::accepting_key(kSeed, h.id("a")));
  EXPECT_NE(a, *h.last<protocol::Welcome>("b")->accepting);
}

TEST_F(KeysTest, ADialHasACredentialThatItsAcceptorCanCheck) {
  h.found({"a", "b"});
  const auto* dial = h.last<protocol::Dial>("a");
  ASSERT_NE(dial, nullptr);
  ASSERT_TRUE(dial->credential.has_value());
  const protocol::LaneIdentity& identity = dial->credential->identity;
  EXPECT_EQ(identity.dialler, h.id("a"));
  EXPECT_EQ(identity.acceptor, h.id("b"));
  EXPECT_EQ(dial->credential->key, expected(identity, *h.last<protocol::Welcome>("b")->accepting));
}

TEST_F(KeysTest, EachDialHasAnotherNumber) {
  h.enlist("a", Harness::hello(3));
  h.enlist("b", Harness::hello(3));
  const uint64_t first = h.last<protocol::Dial>("a")->credential->identity.number;
  h.enlist("c", Harness::hello(3));
  EXPECT_GT(h.last<protocol::Dial>("a")->credential->identity.number, first);
}

TEST_F(KeysTest, ARestartedMasterHasOthers) {
  h.found({"a", "b"});
  h.restart(kNextSeed);
  protocol::Resume resume;
  resume.run = "run";
  resume.run_id = kRunId;
  resume.peer = h.id("a");
  resume.epoch = epoch(1);
  h.come_back("a", resume);
  const auto* resumed = h.last<protocol::Resumed>("a");
  ASSERT_NE(resumed, nullptr);
  EXPECT_EQ(resumed->accepting, net::accepting_key(kNextSeed, h.id("a")));
}

// ---- Tokens ----

// Peers a and b of alice and bob found the group.
struct TokensTest : KeysTest {
  TokensTest() {
    connect("a", kAlice);
    h.say("a", Harness::hello(2));
    connect("b", kBob);
    h.say("b", Harness::hello(2));
    h.say("a", protocol::Register{"", 1001});
    h.say("b", protocol::Register{"", 1002});
    h.take();
  }
  void connect(const std::string& name, const Holder& holder) {
    h.accept(name, "10.0.0.1", false, holder);
  }
  protocol::Resume resume(const std::string& name) const {
    protocol::Resume resume;
    resume.run = "run";
    resume.run_id = kRunId;
    resume.peer = h.id(name);
    resume.hello = Harness::hello(2);
    return resume;
  }
  const Holder kAlice{"token-1", "alice"}, kAliceNext{"token-2", "alice"}, kBob{"token-3", "bob"};
};

TEST_F(TokensTest, ThePeersOfARevokedTokenAreOutAtOnce) {
  h.step(Revoked{{"token-1", "token-9"}});
  const auto* kicked = h.last<protocol::Kicked>("a");
  ASSERT_NE(kicked, nullptr);
  EXPECT_TRUE(contains(kicked->text, "its token, of \"alice\", was revoked")) << kicked->text;
  EXPECT_EQ(h.last<protocol::Kicked>("b"), nullptr);
}

TEST_F(TokensTest, AConnectionOfARevokedTokenIsRefusedBeforeItSaysAnything) {
  connect("c", kAlice);
  h.step(Revoked{{"token-1"}});
  const auto* refused = h.last<protocol::Reject>("c");
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->code, Code::kAuthentication);
}

TEST_F(TokensTest, AnotherTokenOfTheSameNameReplacesTheFirst) {
  h.close("a");
  connect("a", kAliceNext);
  h.say("a", resume("a"));
  ASSERT_NE(h.last<protocol::Resumed>("a"), nullptr);
  h.step(Revoked{{"token-1"}});
  EXPECT_EQ(h.last<protocol::Kicked>("a"), nullptr) << "it has the other one now";
  h.step(Revoked{{"token-2"}});
  EXPECT_NE(h.last<protocol::Kicked>("a"), nullptr);
}

TEST_F(TokensTest, NobodyTakesThePlaceOfAPeerOfAnotherName) {
  connect("thief", kBob);
  protocol::Resume stolen = resume("a");
  h.say("thief", stolen);
  const auto* refused = h.last<protocol::Reject>("thief");
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->code, Code::kAuthentication);
  EXPECT_TRUE(contains(refused->text, "came with a token of another name")) << refused->text;
  h.say("a", protocol::Ping{1, 0, {}});
  EXPECT_NE(h.last<protocol::Pong>("a"), nullptr) << "its own connection stays";
}

// ---- Tokens after a restart ----

// The master was killed when a and b were members, and neither is back yet.
struct TokensAfterARestart : TokensTest {
  TokensAfterARestart() {
    h.link_all();
    h.restart(kNextSeed);
  }
  protocol::Resume resume(const std::string& name) const {
    protocol::Resume resume = TokensTest::resume(name);
    resume.epoch = epoch(1);
    return resume;
  }
  // Restarts from the records of a master that knew of no tokens.
  void restart_without_holders() {
    auto record = std::get<MembershipRecord>(h.records().back());
    for (MemberRecord& member : record.members) member.holder.reset();
    h.restart({kRunId, {{record.group, record}}, {}}, kNextSeed);
  }
  void expect_refused(const std::string& name, const std::string& why) const {
    EXPECT_EQ(h.last<protocol::Resumed>(name), nullptr);
    const auto* refused = h.last<protocol::Reject>(name);
    ASSERT_NE(refused, nullptr);
    EXPECT_EQ(refused->code, Code::kAuthentication);
    EXPECT_TRUE(contains(refused->text, why)) << refused->text;
  }
};

TEST_F(TokensAfterARestart, NobodyTakesThePlaceOfAMemberOfAnotherName) {
  connect("thief", kBob);
  h.say("thief", resume("a"));
  expect_refused("thief", "came with a token of another name");
}

TEST_F(TokensAfterARestart, AMemberComesBackWithAnyTokenOfItsName) {
  connect("a", kAliceNext);
  h.say("a", resume("a"));
  EXPECT_NE(h.last<protocol::Resumed>("a"), nullptr);
  h.step(Revoked{{"token-1"}});
  EXPECT_EQ(h.last<protocol::Kicked>("a"), nullptr) << "it has the other one now";
}

TEST_F(TokensAfterARestart, ARevokedMemberIsOutBeforeItIsBack) {
  EXPECT_EQ(h.core().view().count_holders({"token-1"}), 1u);
  h.step(Revoked{{"token-1"}});
  EXPECT_EQ(h.core().view().count_holders({"token-1"}), 0u);
  connect("a", kAliceNext);
  h.say("a", resume("a"));
  const auto* refused = h.last<protocol::Reject>("a");
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->code, Code::kKicked);
  EXPECT_TRUE(contains(refused->text, "its token, of \"alice\", was revoked")) << refused->text;
}

TEST_F(TokensAfterARestart, AMemberOfAnOlderJournalHasTheTokenThatItShowsFirst) {
  restart_without_holders();
  connect("a", kAlice);
  h.say("a", resume("a"));
  EXPECT_NE(h.last<protocol::Resumed>("a"), nullptr);
  connect("thief", kBob);
  h.say("thief", resume("a"));
  expect_refused("thief", "came with a token of another name");
  h.step(Revoked{{"token-1"}});
  EXPECT_NE(h.last<protocol::Kicked>("a"), nullptr);
}

TEST_F(TokensAfterARestart, AMasterWithoutAKeyringTakesNobodyBackWhoHadAToken) {
  h.restart();
  h.accept("anybody");
  h.say("anybody", resume("a"));
  expect_refused("anybody", "this master was started again without a keyring");
}

TEST(UnsecuredRun, HasNoKeys) {
  Harness h;
  h.found({"a", "b"});
  EXPECT_EQ(h.last<protocol::Welcome>("a")->accepting, std::nullopt);
  EXPECT_EQ(h.last<protocol::Dial>("a")->credential, std::nullopt);
}

}  // namespace
}  // namespace pccl::master
