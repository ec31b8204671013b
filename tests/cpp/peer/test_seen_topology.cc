#include "csrc/peer/seen_topology.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

using protocol::OpKind;

// Policy retry: peer 1.3, which has rank 2, is lost, and the others continue.
struct SeenTopologyTest : testing::Test {
  SeenTopologyTest() { t.become_member(); }
  std::string lose(uint32_t epoch, uint32_t peer, const std::vector<uint32_t>& left) {
    t.go_on(epoch - 1);
    protocol::EpochStart start = t.start_of(epoch, left);
    start.generation = epoch_id(1);
    start.left = {peer_id(peer)};
    return t.hear(start);
  }
  std::string ask() { return t.on(TopologyAsked{}); }
  Transcript t{Transcript::retrying()};
};

TEST_F(SeenTopologyTest, ItChangesWhenTheApplicationAsks) {
  EXPECT_EQ(ask(), "") << "it sees the present members";
  lose(2, 3, {1, 2});
  EXPECT_NE(t.call(t.kind(5, OpKind::kBroadcast, 2)).find("membership changed"), std::string::npos)
      << "rank 2 is the rank of a member that has left";
}

TEST_F(SeenTopologyTest, WithoutAnOperationItIsShownAtOnce) {
  lose(2, 3, {1, 2});
  EXPECT_EQ(ask(), "show rank 1 of 2\n");
  EXPECT_EQ(ask(), "") << "once";
  EXPECT_NE(t.call(t.kind(5, OpKind::kBroadcast, 2)).find("no rank 2"), std::string::npos);
}

TEST_F(SeenTopologyTest, RanksKeepTheirMeaningWhileAnOperationIsInFlight) {
  t.call(t.all_reduce(5));
  lose(2, 3, {1, 2});
  t.on(OpDrained{epoch_id(1), t.key(0)});
  EXPECT_EQ(ask(), "");
  t.on(OpTransferred{epoch_id(2), t.key(0)});
  EXPECT_EQ(ask(), "") << "its outcome is not known yet";
  EXPECT_NE(t.decide(2, 0, {t.committed(t.key(0))}).find("finish call 5: ok"), std::string::npos);
  EXPECT_EQ(ask(), "show rank 1 of 2\n");
}

TEST_F(SeenTopologyTest, AHeldCallIsInFlightToo) {
  t.joint(5, protocol::JointKind::kUpdateTopology);
  t.call(t.all_reduce(6));
  lose(2, 3, {1, 2});
  EXPECT_EQ(ask(), "");
}

TEST_F(SeenTopologyTest, OnlyTheLastOfSeveralChangesIsShown) {
  lose(2, 3, {1, 2});
  lose(3, 1, {2});
  EXPECT_EQ(ask(), "show rank 0 of 1\n");
}

TEST(SeenTopology, UnderAnotherPolicyOnlyUpdateTopologyShowsIt) {
  Transcript t;
  t.become_member();
  t.go_on(1);
  protocol::EpochStart start = t.start_of(2, {1, 2});
  start.generation = epoch_id(1);
  start.left = {peer_id(3)};
  t.hear(start);
  EXPECT_EQ(t.on(TopologyAsked{}), "");
}

TEST(SeenTopology, UpdateTopologyNamesThoseThatLeftUnseen) {
  SeenTopology seen;
  Topology first;
  first.epoch = first.generation = epoch_id(1);
  for (const uint32_t peer : {1, 2, 3}) first.members.push_back({peer_id(peer), ""});
  seen.begin(first, false);
  Topology second = first;
  second.epoch = epoch_id(2);
  second.members.pop_back();
  second.left = {peer_id(3)};
  seen.begin(second, true);
  EXPECT_EQ(seen.left(), std::vector<PeerId>{peer_id(3)});
  EXPECT_FALSE(seen.with_routes(second).has_value());
  Topology present = second;
  present.epoch = epoch_id(4);
  const Topology shown = seen.show_with_routes(present);
  EXPECT_EQ(shown.epoch, epoch_id(2)) << "the first epoch with these members";
  EXPECT_EQ(shown.left, std::vector<PeerId>{peer_id(3)});
  EXPECT_TRUE(seen.left().empty());
  seen.check(peer_id(1), present);
}

}  // namespace
}  // namespace pccl::peer
