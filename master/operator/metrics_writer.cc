#include "master/operator/metrics_writer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"

namespace pccl::master {
namespace {

size_t index_of(std::span<const MetricFamily> families, std::string_view name) {
  const auto found = std::find_if(families.begin(), families.end(),
                                  [name](const MetricFamily& one) { return name == one.name; });
  PCCL_ASSERT(found != families.end());
  return static_cast<size_t>(found - families.begin());
}

// The shortest of two forms that Prometheus reads: an integer has no exponent up to 2^53.
std::string number(double value) {
  char out[32];
  const bool whole = std::floor(value) == value && std::fabs(value) < 9e15;
  std::snprintf(out, sizeof out, whole ? "%.0f" : "%.9g", value);
  return out;
}

std::string escaped(std::string_view value) {
  std::string out;
  for (const char letter : printable(value)) {
    if (letter == '\\' || letter == '"') out += '\\';
    out += letter;
  }
  return out;
}

const char* type_text(MetricFamily::Type type) {
  switch (type) {
    case MetricFamily::Type::kCounter: return "counter";
    case MetricFamily::Type::kGauge: return "gauge";
    case MetricFamily::Type::kHistogram: return "histogram";
  }
  return "";
}

}  // namespace

void MetricsWriter::line(size_t family, const char* suffix, const Labels& labels, double value) {
  std::string out = std::string(families_[family].name) + suffix;
  for (const auto& [name, content] : labels) {
    out += &name == &labels.front().first ? "{" : ",";
    out += std::string(name) + "=\"" + escaped(content) + "\"";
  }
  out += (labels.empty() ? " " : "} ") + number(value) + "\n";
  bytes_ += out.size();
  samples_[family] += out;
}

void MetricsWriter::add(std::string_view name, const Labels& labels, double value) {
  const size_t family = index_of(families_, name);
  PCCL_ASSERT(families_[family].type != MetricFamily::Type::kHistogram);
  line(family, "", labels, value);
}

void MetricsWriter::add_histogram(std::string_view name, const Labels& labels,
                                  std::span<const double> bounds, std::span<const uint64_t> counts,
                                  double sum) {
  PCCL_ASSERT(counts.size() == bounds.size() + 1);
  const size_t family = index_of(families_, name);
  PCCL_ASSERT(families_[family].type == MetricFamily::Type::kHistogram);
  uint64_t up_to_here = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    up_to_here += counts[i];
    const std::string bound = i < bounds.size() ? number(bounds[i]) : "+Inf";
    Labels with_bound = labels;
    with_bound.emplace_back("le", bound);
    line(family, "_bucket", with_bound, static_cast<double>(up_to_here));
  }
  line(family, "_sum", labels, sum);
  line(family, "_count", labels, static_cast<double>(up_to_here));
}

std::string MetricsWriter::text() const {
  std::string out;
  for (size_t i = 0; i < families_.size(); ++i) {
    if (samples_[i].empty()) continue;
    const MetricFamily& family = families_[i];
    out.append("# HELP ").append(family.name).append(" ").append(family.help).append("\n# TYPE ");
    out.append(family.name).append(" ").append(type_text(family.type)).append("\n");
    out.append(samples_[i]);
  }
  return out;
}

}  // namespace pccl::master
