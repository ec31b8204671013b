#include "master/runs/holdings.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

constexpr ConnectionId kConnectionOne{1}, kConnectionTwo{2}, kConnectionThree{3};

TEST(Holdings, LetAllBeUpToTheBudget) {
  Holdings holdings(100);
  holdings.set(kConnectionOne, 7, 60);
  holdings.set(kConnectionTwo, 8, 40);
  EXPECT_EQ(holdings.total(), 100u);
  EXPECT_FALSE(holdings.excess().has_value());
  holdings.check();
}

TEST(Holdings, NameTheLargestOfThePartyThatHasMost) {
  Holdings holdings(100);
  holdings.set(kConnectionOne, 7, 50);
  holdings.set(kConnectionTwo, 8, 30);
  holdings.set(kConnectionThree, 8, 31);
  EXPECT_EQ(holdings.excess(), kConnectionThree) << "one connection has more, another party";
  holdings.forget(kConnectionThree);
  EXPECT_FALSE(holdings.excess().has_value());
  EXPECT_EQ(holdings.total(), 80u);
  holdings.check();
}

TEST(Holdings, KnowWhoHasChangedItsParty) {
  Holdings holdings(10);
  holdings.set(kConnectionOne, 0, 20);
  holdings.set(kConnectionTwo, 0, 5);
  holdings.set(kConnectionOne, 7, 4);  // it belongs to a run now, and most of its bytes were read
  EXPECT_EQ(holdings.total(), 9u);
  holdings.set(kConnectionTwo, 0, 8);
  EXPECT_EQ(holdings.excess(), kConnectionTwo);
  EXPECT_EQ(holdings.of(kConnectionOne), 4u);
  EXPECT_EQ(holdings.of(kConnectionThree), 0u);
  holdings.check();
}

}  // namespace
}  // namespace pccl::master
