#include "master/epochs/statistics.h"

#include <gtest/gtest.h>

#include <numeric>

namespace pccl::master {
namespace {

constexpr auto kReduce = protocol::OpKind::kAllReduce;

Instant at_second(double seconds) {
  return {std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds))};
}

void commit(Statistics& statistics, double second, int operations, double bytes = 0,
            Duration took = {}) {
  for (int i = 0; i < operations; ++i)
    statistics.committed(at_second(second), kReduce, bytes, took);
}

TEST(Statistics, RatesAreUnknownBeforeTheFirstOperation) {
  Statistics statistics;
  statistics.aborted(kReduce);
  statistics.began(at_second(1), 3);
  EXPECT_EQ(statistics.rate(at_second(2)).over, Duration{0});
}

TEST(Statistics, RatesAreMeansSinceTheFirstOperation) {
  Statistics statistics;
  commit(statistics, 100, 5, 200);
  commit(statistics, 108, 5, 200);
  const auto rate = statistics.rate(at_second(110));
  EXPECT_DOUBLE_EQ(rate.operations, 1);
  EXPECT_DOUBLE_EQ(rate.bytes, 200);
  EXPECT_DOUBLE_EQ(to_seconds(rate.over), 10);
  EXPECT_DOUBLE_EQ(statistics.rate(at_second(108)).operations, 1.25);
}

TEST(Statistics, RatesForgetOperationsAfterAMinute) {
  Statistics statistics;
  for (int i = 0; i < 300; ++i) commit(statistics, i, 2, 5);
  EXPECT_NEAR(statistics.rate(at_second(299.5)).operations, 2, 0.1);
  EXPECT_NEAR(statistics.rate(at_second(329.5)).operations, 1, 0.1);
  EXPECT_EQ(statistics.rate(at_second(400)).operations, 0);
}

TEST(Statistics, TotalsOnlyGrow) {
  Statistics statistics;
  statistics.began(at_second(1), 3);
  statistics.began(at_second(2), 0);
  commit(statistics, 3, 2, 40, std::chrono::seconds(2));
  statistics.aborted(protocol::OpKind::kSend);
  statistics.lost(at_second(4), LossCause::kLink, "tokyo");
  const Statistics::Totals& totals = statistics.totals();
  EXPECT_EQ(totals.epochs, 2u);
  EXPECT_EQ(totals.joins, 3u);
  EXPECT_EQ(totals.losses[static_cast<size_t>(LossCause::kLink)], 1u);
  EXPECT_EQ(totals.committed[static_cast<size_t>(kReduce)], 2u);
  EXPECT_EQ(totals.aborted[static_cast<size_t>(protocol::OpKind::kSend)], 1u);
  EXPECT_EQ(totals.bytes, 80);
  EXPECT_EQ(totals.took_s, 4);
  statistics.check();
}

TEST(Statistics, ATimeThatIsABoundIsWithinIt) {
  Statistics statistics;
  commit(statistics, 1, 1, 0, std::chrono::milliseconds(1));
  commit(statistics, 1, 1, 0, std::chrono::microseconds(1001));
  commit(statistics, 1, 1, 0, std::chrono::seconds(300));
  commit(statistics, 1, 1, 0, std::chrono::seconds(301));
  const auto& took = statistics.totals().took;
  EXPECT_EQ(took[0], 1u);
  EXPECT_EQ(took[1], 1u);
  EXPECT_EQ(took[Statistics::kBounds.size() - 1], 1u);
  EXPECT_EQ(took.back(), 1u);
}

TEST(Statistics, TheHourHasOnePointForEveryStepAndTheNewestIsLast) {
  Statistics statistics;
  commit(statistics, 3590, 7);
  statistics.began(at_second(3601), 2);
  statistics.lost(at_second(3604), LossCause::kLeft, "");
  commit(statistics, 3607, 3, 10);
  const auto hour = statistics.hour(at_second(3609));
  ASSERT_EQ(hour.size(), 720u);
  EXPECT_EQ(hour[719].operations, 3u);
  EXPECT_EQ(hour[719].bytes, 30);
  EXPECT_EQ(hour[718].joins, 2u);
  EXPECT_EQ(hour[718].losses, 1u);
  EXPECT_EQ(hour[716].operations, 7u);
  EXPECT_EQ(hour[717].operations + hour[715].operations, 0u);
}

TEST(Statistics, OnlyTheLastHourIsKept) {
  Statistics statistics;
  for (int i = 0; i < 2000; ++i) commit(statistics, 5 * i, 1);
  statistics.check();
  const auto sum = [&statistics](double now) {
    const auto hour = statistics.hour(at_second(now));
    return std::accumulate(hour.begin(), hour.end(), 0u,
                           [](unsigned all, const auto& point) { return all + point.operations; });
  };
  EXPECT_EQ(sum(9999), 720u);
  EXPECT_EQ(sum(9999 + 1800), 360u);
  EXPECT_EQ(sum(20000), 0u);
}

TEST(Statistics, GoneMembersVanishAfterTenMinutes) {
  Statistics statistics;
  for (int i = 0; i < 200; ++i)
    statistics.lost(at_second(i), LossCause::kSilence, std::to_string(i));
  statistics.check();
  EXPECT_EQ(statistics.gone(at_second(300)).size(), Statistics::kGoneKept);
  EXPECT_EQ(statistics.gone(at_second(798)).size(), 1u);
  EXPECT_EQ(statistics.gone(at_second(798))[0].name, "199");
  EXPECT_TRUE(statistics.gone(at_second(799)).empty());
}

}  // namespace
}  // namespace pccl::master
