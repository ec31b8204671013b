// MetricsWriter: a text in the format 0.0.4 of Prometheus. A value of one scrape: samples go in in
// any order, and text() has them by family, as the format requires. Pure.
// A small writer of our own: client libraries, such as prometheus-cpp, bring registries with locks
// and a server, while this master has its numbers in place and only has to print them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pccl::master {

struct MetricFamily {
  enum class Type : uint8_t { kCounter, kGauge, kHistogram };
  const char* name;
  Type type;
  const char* help;  // one sentence without line ends and backslashes
};

class MetricsWriter {
 public:
  // The value of a label may have any bytes. Those that are not UTF-8 or that cannot be shown are
  // written as escapes (printable() in csrc/base/text.h), because one of them would make Prometheus
  // refuse the whole text.
  using Label = std::pair<const char*, std::string_view>;
  using Labels = std::vector<Label>;

  explicit MetricsWriter(std::span<const MetricFamily> families)
      : families_(families), samples_(families.size()) {}

  // REQUIRES: `name` is a family, and these labels are new in it.
  void add(std::string_view name, const Labels& labels, double value);
  // `counts`: of the values in each bucket; the last one has no bound, all others one of `bounds`.
  void add_histogram(std::string_view name, const Labels& labels, std::span<const double> bounds,
                     std::span<const uint64_t> counts, double sum);

  size_t bytes() const { return bytes_; }
  std::string text() const;  // families without samples are left out

 private:
  void line(size_t family, const char* suffix, const Labels& labels, double value);

  const std::span<const MetricFamily> families_;
  std::vector<std::string> samples_;  // by family
  size_t bytes_ = 0;
};

}  // namespace pccl::master
