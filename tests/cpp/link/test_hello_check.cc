#include "csrc/link/hello_check.h"

#include <gtest/gtest.h>

namespace pccl::link {
namespace {

// This peer is peer 5 of run 99, and another one says hello on a connection that it has dialled.
class HelloCheck : public testing::Test {
 protected:
  std::string refused(uint32_t last_serial = 0) const {
    return refusal(own, lane, hello, last_serial);
  }

  const Identity own{{5}, 99, 7, 9, {}};
  LaneState lane;
  std::optional<protocol::LaneHello> hello = protocol::LaneHello{
      .run_id = 99, .self = {8}, .other = {5}, .versions = {8, 10}, .serial = 1};
};

TEST_F(HelloCheck, AValidHelloIsNotRefused) {
  EXPECT_EQ(refused(), "");
  const protocol::LaneHello made = hello_of({{8}, 99, 7, 9, {}}, {5}, 1, false);
  EXPECT_EQ(made.self, PeerId{8});
  EXPECT_EQ(made.run_id, hello->run_id);
  EXPECT_EQ(made.other, hello->other);
}

TEST_F(HelloCheck, AnotherFrameIsNoHello) {
  hello.reset();
  EXPECT_EQ(refused(), "it did not introduce itself");
}

TEST_F(HelloCheck, BothEndsMeanTheSameRunAndEachOther) {
  hello->run_id = 98;
  EXPECT_EQ(refused(), "it belongs to another run");
  hello->run_id = 99;
  hello->other = {6};
  EXPECT_EQ(refused(), "it looks for peer 0.6");
  hello->other = hello->self = {5};
  EXPECT_EQ(refused(), "it says that it is peer 0.5");
  hello->self = {8};
  hello->versions = {1, 2};
  EXPECT_NE(refused(), "");
}

TEST_F(HelloCheck, TheSideWithTheHigherIdHasOddNumbers) {
  hello->serial = 2;
  EXPECT_EQ(refused(), "it speaks of connection 2");
  hello->self = {3};
  EXPECT_EQ(refused(), "");
}

TEST_F(HelloCheck, AProofSettlesPeerAndConnection) {
  lane.credential = {{{8}, {5}, 1, 1}, {}};
  lane.serial = 3;
  EXPECT_EQ(refused(), "it has proven connection 3, and speaks of connection 1");
  hello->serial = 3;
  hello->further = true;
  EXPECT_EQ(refused(), "it speaks of a further lane");
  hello->self = {7};
  EXPECT_EQ(refused(), "it has proven to be peer 0.8, and says that it is peer 0.7");
}

}  // namespace
}  // namespace pccl::link
