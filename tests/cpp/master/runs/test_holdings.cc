#include "master/runs/holdings.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

constexpr ConnectionId kOne{1}, kTwo{2}, kThree{3};

TEST(Holdings, LetAllBeUpToTheBudget) {
  Holdings holdings(100);
  holdings.set(kOne, 7, 60);
  holdings.set(kTwo, 8, 40);
  EXPECT_EQ(holdings.total(), 100u);
  EXPECT_FALSE(holdings.excess().has_value());
  holdings.check();
}

TEST(Holdings, NameTheLargestOfThePartyThatHasMost) {
  Holdings holdings(100);
  holdings.set(kOne, 7, 50);
  holdings.set(kTwo, 8, 30);
  holdings.set(kThree, 8, 31);
  EXPECT_EQ(holdings.excess(), kThree) << "one connection has more, another party";
  holdings.forget(kThree);
  EXPECT_FALSE(holdings.excess().has_value());
  EXPECT_EQ(holdings.total(), 80u);
  holdings.check();
}

TEST(Holdings, KnowWhoHasChangedItsParty) {
  Holdings holdings(10);
  holdings.set(kOne, 0, 20);
  holdings.set(kTwo, 0, 5);
  holdings.set(kOne, 7, 4);  // it belongs to a run now, and most of its bytes were read
  EXPECT_EQ(holdings.total(), 9u);
  holdings.set(kTwo, 0, 8);
  EXPECT_EQ(holdings.excess(), kTwo);
  EXPECT_EQ(holdings.of(kOne), 4u);
  EXPECT_EQ(holdings.of(kThree), 0u);
  holdings.check();
}

}  // namespace
}  // namespace pccl::master
