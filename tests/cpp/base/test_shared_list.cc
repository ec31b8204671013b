#include "csrc/base/shared_list.h"

#include <gtest/gtest.h>

namespace pccl {
namespace {

using Numbers = SharedList<int>;

TEST(SharedList, CopiesShareOneList) {
  const Numbers list{3, 5};
  const Numbers copy = list;
  EXPECT_EQ(&copy.all(), &list.all());
  EXPECT_EQ(&copy[1], &list[1]);
  EXPECT_EQ(copy.size(), 2u);
}

TEST(SharedList, ComparesEntries) {
  const Numbers list{3, 5};
  EXPECT_EQ(list, Numbers(std::vector{3, 5}));
  EXPECT_FALSE(list == Numbers{3});
  EXPECT_FALSE(list == (Numbers{3, 6}));
}

TEST(SharedList, NoneIsAnEmptyList) {
  EXPECT_TRUE(Numbers().empty());
  EXPECT_EQ(Numbers(), Numbers(std::vector<int>{}));
  EXPECT_EQ(Numbers().begin(), Numbers().end());
}

TEST(SharedList, TakesASharedListAsItIs) {
  const auto shared = std::make_shared<const std::vector<int>>(std::vector{3});
  EXPECT_EQ(&Numbers(shared).all(), shared.get());
}

}  // namespace
}  // namespace pccl
