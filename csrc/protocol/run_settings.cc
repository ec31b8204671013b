#include "csrc/protocol/run_settings.h"

#include <cctype>
#include <string>
#include <type_traits>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/protocol/limits.h"

namespace pccl::protocol {
namespace {

static_assert(RunSettings{}.peer_timeout == kPeerTimeoutDefault);
static_assert(RunSettings{}.first_call_timeout == kPeerTimeoutDefault);

// Calls visit(name, given value, value of the run) for each setting.
template <typename Given, typename Run, typename Visit>
void each(Given& given, Run& run, const Visit& visit) {
  visit("on_peer_loss", given.on_peer_loss, run.on_peer_loss);
  visit("pattern", given.pattern, run.pattern);
  visit("peer_timeout", given.peer_timeout, run.peer_timeout);
  visit("first_call_timeout", given.first_call_timeout, run.first_call_timeout);
  visit("call_timeout", given.call_timeout, run.call_timeout);
}

std::string variable_of(const std::string& name) {
  std::string variable = "PCCL_";
  for (const char letter : name)
    variable += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return variable;
}

// Returns the name of a setting whose time is out of bounds, and a text with its bounds. Both are
// empty if there is no such setting.
std::pair<std::string, std::string> out_of_bounds(const GivenSettings& given) {
  std::pair<std::string, std::string> found;
  const RunSettings run;
  each(given, run, [&found](const std::string& name, const auto& value, const auto& by_default) {
    if constexpr (std::is_same_v<std::decay_t<decltype(by_default)>, Duration>) {
      const bool none = value == Duration{0} && by_default == Duration{0};
      if (!found.first.empty() || !value || none) return;
      if (*value >= kPeerTimeoutMin && *value <= kPeerTimeoutMax) return;
      found = {name, name + " is " + pccl::text(*value) + ", allowed are " +
                         pccl::text(kPeerTimeoutMin) + " to " + pccl::text(kPeerTimeoutMax)};
    }
  });
  return found;
}

std::string shown(Duration time) { return time == Duration{0} ? "not set" : pccl::text(time); }
std::string shown(auto choice) { return text(choice); }

}  // namespace

const char* text(LossPolicy policy) { return policy == LossPolicy::kRetry ? "retry" : "raise"; }

const char* text(PatternChoice choice) {
  switch (choice) {
    case PatternChoice::kAny: break;
    case PatternChoice::kRing: return "ring";
    case PatternChoice::kDirect: return "direct";
  }
  return "not set";
}

RunSettings settings_of_first(const GivenSettings& given) {
  RunSettings run;
  run.first_call_timeout = given.peer_timeout.value_or(run.peer_timeout);
  each(given, run, [](const char*, const auto& value, auto& of_run) {
    if (value) of_run = *value;
  });
  return run;
}

GivenSettings give_all(const RunSettings& run) {
  GivenSettings given;
  each(given, run, [](const char*, auto& value, const auto& of_run) { value = of_run; });
  return given;
}

Status check(const RunSettings& run) {
  const std::string found = out_of_bounds(give_all(run)).second;
  return found.empty() ? Status{} : Status{Code::kInvalidArgument, found, {}};
}

Status check(const GivenSettings& given) {
  const auto [name, found] = out_of_bounds(given);
  if (found.empty()) return {};
  return {Code::kInvalidArgument,
          found + ": change " + variable_of(name) + ", or leave it out to have that of the run",
          {}};
}

Status compare(const GivenSettings& given, const RunSettings& run) {
  std::string differences, variables;
  each(given, run, [&](const std::string& name, const auto& value, const auto& of_run) {
    if (!value || *value == of_run) return;
    const char* const separator = differences.empty() ? "" : ", ";
    differences +=
        separator + name + " is " + shown(*value) + " here and " + shown(of_run) + " in this run";
    variables += separator + variable_of(name);
  });
  if (differences.empty()) return {};
  return {Code::kInvalidArgument,
          differences + ". A run has the settings of its first peer: leave out " + variables +
              " (or the parameter of the URL), and this peer takes them from the run",
          {}};
}

}  // namespace pccl::protocol
