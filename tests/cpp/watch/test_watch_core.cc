#include "csrc/watch/watch_core.h"

#include <gtest/gtest.h>

#include "csrc/protocol/codec.h"
#include "csrc/protocol/limits.h"

namespace pccl::watch {
namespace {

using protocol::Snapshot;
using std::chrono::milliseconds;

class WatchCoreTest : public testing::Test {
 protected:
  // The effects of an event, one a line.
  std::string on(const Event& event) {
    Effects effects;
    core.step(event, now, effects);
    std::string out;
    for (const Effect& effect : effects) {
      if (const auto* send = std::get_if<Send>(&effect))
        out += std::string("send ") + protocol::name(send->message) + " " +
               std::get<protocol::Watch>(send->message).run + "\n";
      if (const auto* show = std::get_if<Show>(&effect)) out += "show " + show->snapshot + "\n";
      if (const auto* over = std::get_if<Over>(&effect))
        out += "over " + std::to_string(static_cast<int>(over->ending)) + " " + over->why + "\n";
    }
    return out;
  }
  static std::string over(Ending ending, const std::string& why) {
    return "over " + std::to_string(static_cast<int>(ending)) + " " + why + "\n";
  }
  std::string hear(const protocol::Message& message) { return on(Received{message}); }
  void watch(Duration interval) { core = WatchCore({"night", interval}, now); }

  Instant now = Instant{} + std::chrono::hours(1);
  WatchCore core{{"night", std::nullopt}, now};
};

TEST_F(WatchCoreTest, OneSnapshotOfSeveralParts) {
  EXPECT_EQ(on(Connected{}), "send Watch night\n");
  EXPECT_EQ(hear(Snapshot{"{\"a\":", false}), "");
  EXPECT_EQ(hear(Snapshot{"1}", true}), "show {\"a\":1}\n" + over(Ending::kDone, ""));
  EXPECT_FALSE(core.deadline().has_value());
  EXPECT_EQ(hear(Snapshot{"{}", true}), "") << "nothing follows";
}

TEST_F(WatchCoreTest, SnapshotsWithPauses) {
  watch(milliseconds(500));
  on(Connected{});
  EXPECT_EQ(hear(Snapshot{"{}", true}), "show {}\n");
  EXPECT_EQ(*core.deadline(), now + milliseconds(500));
  now = now + milliseconds(499);
  EXPECT_EQ(on(TimePassed{}), "");
  now = now + milliseconds(1);
  EXPECT_EQ(on(TimePassed{}), "send Watch night\n");
  EXPECT_EQ(hear(Snapshot{"{}", true}), "show {}\n");
  EXPECT_EQ(hear(Snapshot{"{}", true}), over(Ending::kLost, "it sends an unexpected Snapshot"));
}

TEST_F(WatchCoreTest, ARefusalIsShownAsItIs) {
  on(Connected{});
  EXPECT_EQ(hear(protocol::Reject{Code::kInvalidState, "no such run"}),
            over(Ending::kRefused, "no such run"));
  watch(milliseconds(500));
  on(Connected{});
  EXPECT_EQ(hear(protocol::Reject{Code::kAuthentication, "no token"}),
            over(Ending::kToken, "no token"));
}

TEST_F(WatchCoreTest, EachFailureHasItsKind) {
  EXPECT_EQ(on(Failed{{Code::kSystem, "refused", {}}}), over(Ending::kNoMaster, "refused"));
  watch(milliseconds(500));
  EXPECT_EQ(on(Failed{{Code::kAuthentication, "wrong key", {}}}),
            over(Ending::kToken, "wrong key"));
  watch(milliseconds(500));
  on(Connected{});
  EXPECT_EQ(on(Failed{{Code::kSystem, "reset", {}}}), over(Ending::kLost, "reset"));
}

TEST_F(WatchCoreTest, EachWaitHasALimit) {
  EXPECT_EQ(*core.deadline(), now + WatchCore::kAnswerTimeout);
  now = now + WatchCore::kAnswerTimeout;
  EXPECT_EQ(on(TimePassed{}), over(Ending::kNoMaster, "no connection within 10 s"));
  watch(milliseconds(500));
  on(Connected{});
  now = now + WatchCore::kAnswerTimeout;
  EXPECT_EQ(on(TimePassed{}), over(Ending::kLost, "it does not answer within 10 s"));
}

TEST_F(WatchCoreTest, AnEndlessAnswerIsRefused) {
  on(Connected{});
  const std::string part(protocol::kSnapshotPartBytesMax, 'x');
  std::string last;
  for (size_t sent = 0; sent <= protocol::kSnapshotBytesMax && last.empty(); sent += part.size())
    last = hear(Snapshot{part, false});
  EXPECT_EQ(last, over(Ending::kLost, "its answer takes more than 4194304 bytes"));
}

TEST_F(WatchCoreTest, OnlyAMasterMayAnswer) {
  on(Connected{});
  EXPECT_EQ(hear(protocol::Welcome{}), over(Ending::kLost, "it sends an unexpected Welcome"));
}

}  // namespace
}  // namespace pccl::watch
