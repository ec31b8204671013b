#include "master/runs/holdings.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

constexpr ConnectionId kFirst{1}, kSecond{2}, kThird{3};

TEST(Holdings, LetAllBeUpToTheBudget) {
  Holdings holdings(100);
  holdings.set(kFirst, 7, 60);
  holdings.set(kSecond, 8, 40);
  EXPECT_EQ(holdings.total(), 100u);
  EXPECT_FALSE(holdings.excess().has_value());
  holdings.check();
}

TEST(Holdings, NameTheLargestOfThePartyThatHasMost) {
  Holdings holdings(100);
  holdings.set(kFirst, 7, 50);
  holdings.set(kSecond, 8, 30);
  holdings.set(kThird, 8, 31);
  EXPECT_EQ(holdings.excess(), kThird) << "one connection has more, another party";
  holdings.forget(kThird);
  EXPECT_FALSE(holdings.excess().has_value());
  EXPECT_EQ(holdings.total(), 80u);
  holdings.check();
}

TEST(Holdings, KnowWhoHasChangedItsParty) {
  Holdings holdings(10);
  holdings.set(kFirst, 0, 20);
  holdings.set(kSecond, 0, 5);
  holdings.set(kFirst, 7, 4);  // it belongs to a run now, and most of its bytes were read
  EXPECT_EQ(holdings.total(), 9u);
  holdings.set(kSecond, 0, 8);
  EXPECT_EQ(holdings.excess(), kSecond);
  EXPECT_EQ(holdings.of(kFirst), 4u);
  EXPECT_EQ(holdings.of(kThird), 0u);
  holdings.check();
}

}  // namespace
}  // namespace pccl::master
