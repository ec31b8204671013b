// Operations that begin again when their generation goes on in another epoch.

#include "csrc/peer/operations.h"
#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

using protocol::OpKind;

const std::string kOfThree = "all_reduce(sum, float32, 8 elements, world size 3)";

TEST(Reconfiguration, AnUnfinishedOperationBeginsAgainOnceItIsDrained) {
  Transcript t;
  t.become_member();
  for (Handle handle = 5; handle < 8; ++handle) t.call(t.all_reduce(handle));
  t.on(OpTransferred{epoch_id(1), t.key(0)});
  t.on(OpTransferred{epoch_id(1), t.key(1)});
  EXPECT_EQ(t.hear(protocol::FreezeRequest{epoch_id(1), {}}),
            "info: epoch 1.1 is ending: nobody is lost: there is a new link or plan, or the master "
            "is about to end\n"
            "tell StateReport, #0 done, #1 done, #2 not done\n");
  EXPECT_EQ(t.call(t.all_reduce(8)), "") << "it waits for the next epoch";
  EXPECT_EQ(t.go_on(1, {t.key(0)}),
            "end #0 committed\nfinish call 5: ok\nend #1 again\nend #2 again\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(1)}), "") << "the next epoch is not there yet";
  EXPECT_EQ(t.reconfigure(2),
            "begin epoch 1.2 with 1.1 1.3\ninfo: epoch 1.2 begins: this process is rank 1 of 3\n"
            "tell Begin #1 " +
                kOfThree +
                "\nstart call 6 as #1: 1 of 3, from 1.1, to 1.3\n"
                "tell Begin #3 " +
                kOfThree + "\nstart call 8 as #3: 1 of 3, from 1.1, to 1.3\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), t.key(2)}), "") << "of the epoch that is over";
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(2)}),
            "tell Begin #2 " + kOfThree + "\nstart call 7 as #2: 1 of 3, from 1.1, to 1.3\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(2), t.key(1)}), "tell Done #1\n");
  EXPECT_EQ(t.decide(2, 0, {t.committed(t.key(1))}), "end #1 committed\nfinish call 6: ok\n");
  EXPECT_EQ(t.call(t.all_reduce(9)).substr(0, 14), "tell Begin #4 ") << "numbers go on";
}

TEST(Reconfiguration, AnOperationThatCannotBeRestoredIsNotRepeated) {
  Options options = Transcript::default_options();
  options.restore = false;
  Transcript t(options);
  t.become_member();
  t.call(t.all_reduce(5));
  t.call(t.kind(6, OpKind::kBroadcast, 0));  // it overwrites nothing that it needs
  t.call(t.kind(7, OpKind::kReduce, 1));     // to this peer, whose tensor gets the result
  t.call(t.kind(8, OpKind::kReduce, 0));
  t.go_on(1);
  for (uint32_t i = 0; i < 4; ++i) t.on(OpDrained{epoch_id(1), t.key(i)});
  const std::string story = t.reconfigure(2);
  EXPECT_NE(story.find("tell AbortRequest #0, peer lost"), std::string::npos) << story;
  EXPECT_NE(story.find("PCCL_RESTORE=off"), std::string::npos) << story;
  EXPECT_EQ(story.find("start call 5"), std::string::npos) << story;
  EXPECT_NE(story.find("start call 6"), std::string::npos) << story;
  EXPECT_NE(story.find("tell AbortRequest #2, peer lost"), std::string::npos) << story;
  EXPECT_EQ(story.find("start call 7"), std::string::npos) << story;
  EXPECT_NE(story.find("start call 8"), std::string::npos) << story;
}

TEST(Reconfiguration, ALossThatIsOutlivedEndsWhatNoLongerMeansTheSame) {
  Transcript t(Transcript::retrying());
  t.become_member();
  t.call(t.all_reduce(5));
  t.call(t.kind(6, OpKind::kAllGather));
  t.call(t.kind(7, OpKind::kBroadcast, 2));  // from the member that will be lost
  t.call(t.kind(8, OpKind::kSend, 2));
  t.go_on(1);
  protocol::OpInfo send;
  send.kind = OpKind::kSend;
  send.root = peer_id(2);
  send.receiver = peer_id(3);
  const OpKey sent{tag_of(send), 0};
  for (uint32_t i = 0; i < 3; ++i) t.on(OpDrained{epoch_id(1), t.key(i)});
  t.on(OpDrained{epoch_id(1), sent});
  protocol::EpochStart start = t.start_of(2, {1, 2});
  start.generation = epoch_id(1);
  start.left = {peer_id(3)};
  const std::string story = t.hear(start);
  const auto has = [&](const std::string& line) {
    EXPECT_NE(story.find(line), std::string::npos) << line << " in\n" << story;
  };
  has("reconfigured in epoch 1.2: rank 1 of 2\n");
  has("tell Begin #0 all_reduce(sum, float32, 8 elements, world size 2)\nstart call 5");
  has("tell AbortRequest #1, membership changed");
  has("tell AbortRequest #2, membership changed");
  has("finish call 8: membership changed");
  // Ranks keep their meaning until the application has seen the new topology.
  EXPECT_EQ(t.call(t.kind(9, OpKind::kBroadcast, 2)).find("start"), std::string::npos);
  EXPECT_EQ(t.on(TopologyAsked{}), "") << "operations are in flight";
}

}  // namespace
}  // namespace pccl::peer
