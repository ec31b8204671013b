#include "csrc/base/result.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>

namespace pccl {
namespace {

TEST(Status, IsOkUnlessItSaysOtherwise) {
  EXPECT_TRUE(Status{}.ok());
  EXPECT_FALSE((Status{Code::kPeerLost, "peer 1.3 lost", PeerId{3}}).ok());
}

TEST(Status, EveryCodeHasAWordOfItsOwn) {
  std::set<std::string> words;
  for (int code = 0; code <= static_cast<int>(Code::kProtocol); ++code) {
    words.insert(text(static_cast<Code>(code)));
  }
  EXPECT_EQ(words.size(), static_cast<size_t>(Code::kProtocol) + 1);
  EXPECT_FALSE(words.contains("unknown"));
}

TEST(Result, HoldsAValueOrTheReasonThatThereIsNone) {
  Result<int> seven(7);
  EXPECT_TRUE(seven.ok());
  EXPECT_EQ(seven.value(), 7);
  Result<int> none(Status{Code::kSystem, "port taken", {}});
  EXPECT_FALSE(none.ok());
  EXPECT_EQ(none.status().message, "port taken");
}

TEST(ResultDeathTest, CannotBeAFailureWithoutAReason) {
  EXPECT_DEATH((void)Result<int>(Status{}), "assertion failed");
}

TEST(Status, AThrownExceptionIsAStatus) {
  EXPECT_TRUE(caught([] {}).ok());
  EXPECT_EQ(caught([] { throw std::bad_alloc(); }).message, "no memory left");
  EXPECT_EQ(caught([] { throw std::runtime_error("so"); }), (Status{Code::kSystem, "so", {}}));
}

}  // namespace
}  // namespace pccl
