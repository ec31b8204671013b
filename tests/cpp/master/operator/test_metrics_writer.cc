#include "master/operator/metrics_writer.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

constexpr MetricFamily kFamilies[] = {
    {"a_total", MetricFamily::Type::kCounter, "First."},
    {"b", MetricFamily::Type::kGauge, "Second."},
    {"c_seconds", MetricFamily::Type::kHistogram, "Third."},
};

TEST(MetricsWriter, SamplesAreInTheOrderOfTheFamilies) {
  MetricsWriter out(kFamilies);
  out.add("b", {}, 1.5);
  out.add("a_total", {{"run", "x"}}, 1);
  out.add("b", {{"run", "x"}, {"peer", "y"}}, 2);
  EXPECT_EQ(out.text(),
            "# HELP a_total First.\n"
            "# TYPE a_total counter\n"
            "a_total{run=\"x\"} 1\n"
            "# HELP b Second.\n"
            "# TYPE b gauge\n"
            "b 1.5\n"
            "b{run=\"x\",peer=\"y\"} 2\n");
}

TEST(MetricsWriter, HostileValuesOfLabelsAreEscaped) {
  MetricsWriter out(kFamilies);
  out.add("b", {{"run", "a\"} 1\nb{run=\"x\\"}}, 1);
  out.add("b", {{"run", "\xff\xc3(\xe2\x80\xae"}}, 2);
  out.add("b", {{"run", "tokió"}}, 3);
  EXPECT_EQ(out.text(),
            "# HELP b Second.\n"
            "# TYPE b gauge\n"
            "b{run=\"a\\\"} 1\\\\nb{run=\\\"x\\\\\"} 1\n"
            "b{run=\"\\\\xff\\\\xc3(\\\\u202e\"} 2\n"
            "b{run=\"tokió\"} 3\n");
}

TEST(MetricsWriter, BucketsOfAHistogramAreCumulative) {
  MetricsWriter out(kFamilies);
  const double bounds[] = {0.001, 300};
  const uint64_t counts[] = {2, 0, 5};
  out.add_histogram("c_seconds", {{"run", "x"}}, bounds, counts, 1e16);
  EXPECT_EQ(out.text(),
            "# HELP c_seconds Third.\n"
            "# TYPE c_seconds histogram\n"
            "c_seconds_bucket{run=\"x\",le=\"0.001\"} 2\n"
            "c_seconds_bucket{run=\"x\",le=\"300\"} 2\n"
            "c_seconds_bucket{run=\"x\",le=\"+Inf\"} 7\n"
            "c_seconds_sum{run=\"x\"} 1e+16\n"
            "c_seconds_count{run=\"x\"} 7\n");
}

TEST(MetricsWriter, IntegersHaveAllTheirDigits) {
  MetricsWriter out(kFamilies);
  out.add("a_total", {}, 123456789012345);
  EXPECT_NE(out.text().find("a_total 123456789012345\n"), std::string::npos) << out.text();
}

}  // namespace
}  // namespace pccl::master
