// The keys that the master of a secured run hands out.

#include "csrc/protocol/keys.h"

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::Key;

const Key kSeed{{1, 2, 3, 4}}, kNextSeed{{5, 6, 7, 8}};

struct KeysTest : testing::Test {
  // The key that the acceptor of this credential computes from its identity.
  Key expected(const protocol::LaneIdentity& identity, const Key& accepting) const {
    return protocol::lane_key(accepting, kRunId, identity);
  }
  Harness h{protocol::kSpoken.highest, kSeed};
};

TEST_F(KeysTest, EachPeerHasAnAcceptingKeyOfItsOwn) {
  h.found({"a", "b"});
  const Key a = *h.last<protocol::Welcome>("a")->accepting;
  EXPECT_EQ(a, protocol::accepting_key(kSeed, h.id("a")));
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
  EXPECT_EQ(resumed->accepting, protocol::accepting_key(kNextSeed, h.id("a")));
}

TEST(UnsecuredRun, HasNoKeys) {
  Harness h;
  h.found({"a", "b"});
  EXPECT_EQ(h.last<protocol::Welcome>("a")->accepting, std::nullopt);
  EXPECT_EQ(h.last<protocol::Dial>("a")->credential, std::nullopt);
}

}  // namespace
}  // namespace pccl::master
