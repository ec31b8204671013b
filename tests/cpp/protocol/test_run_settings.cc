#include "csrc/protocol/run_settings.h"

#include <gtest/gtest.h>

#include "csrc/protocol/codec.h"

namespace pccl::protocol {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// No value is its default.
const RunSettings kOther{.on_peer_loss = LossPolicy::kRetry,
                         .pattern = PatternChoice::kDirect,
                         .peer_timeout = milliseconds(2500),
                         .first_call_timeout = milliseconds(700),
                         .call_timeout = seconds(60)};

TEST(RunSettings, TheFirstPeerDecidesThemAndTheRestIsByDefault) {
  EXPECT_EQ(settings_of_first({}), RunSettings{});
  EXPECT_EQ(settings_of_first(give_all(kOther)), kOther);
  RunSettings expected;
  expected.call_timeout = seconds(60);
  EXPECT_EQ(settings_of_first({.call_timeout = seconds(60)}), expected);
}

TEST(RunSettings, FirstCallTimeoutIsThePeerTimeoutByDefault) {
  const RunSettings run = settings_of_first({.peer_timeout = seconds(3)});
  EXPECT_EQ(run.peer_timeout, seconds(3));
  EXPECT_EQ(run.first_call_timeout, seconds(3));
  const GivenSettings both{.peer_timeout = seconds(3), .first_call_timeout = seconds(9)};
  EXPECT_EQ(settings_of_first(both).first_call_timeout, seconds(9));
}

TEST(RunSettings, APeerThatGivesNothingOrTheSameFitsAnyRun) {
  for (const RunSettings& run : {RunSettings{}, kOther}) {
    EXPECT_EQ(compare({}, run), Status{});
    EXPECT_EQ(compare(give_all(run), run), Status{});
    EXPECT_EQ(compare({.peer_timeout = run.peer_timeout}, run), Status{});
  }
}

TEST(RunSettings, EachDifferenceIsNamedWithBothValues) {
  const std::string remedy =
      " (or the parameter of the URL), and this peer takes them from the run";
  const std::string first = ". A run has the settings of its first peer: leave out ";
  EXPECT_EQ(compare(give_all(kOther), {}).code, Code::kInvalidArgument);
  EXPECT_EQ(compare(give_all(kOther), {}).message,
            "on_peer_loss is retry here and raise in this run, pattern is direct here and not set "
            "in this run, peer_timeout is 2.5 s here and 10 s in this run, first_call_timeout is "
            "700 ms here and 10 s in this run, call_timeout is 60 s here and not set in this run" +
                first +
                "PCCL_ON_PEER_LOSS, PCCL_PATTERN, PCCL_PEER_TIMEOUT, PCCL_FIRST_CALL_TIMEOUT, "
                "PCCL_CALL_TIMEOUT" +
                remedy);
  EXPECT_EQ(compare({.pattern = PatternChoice::kRing}, kOther).message,
            "pattern is ring here and direct in this run" + first + "PCCL_PATTERN" + remedy);
}

TEST(RunSettings, TimesOutOfBoundsAreRefusedWithTheBounds) {
  EXPECT_EQ(check(GivenSettings{}), Status{});
  EXPECT_EQ(check(give_all({})), Status{}) << "no call timeout";
  EXPECT_EQ(check(give_all(kOther)), Status{});
  EXPECT_EQ(check(GivenSettings{.peer_timeout = milliseconds(5)}).code, Code::kInvalidArgument);
  EXPECT_EQ(check(GivenSettings{.peer_timeout = milliseconds(5)}).message,
            "peer_timeout is 5 ms, allowed are 100 ms to 60 min: change PCCL_PEER_TIMEOUT, or "
            "leave it out to have that of the run");
  for (const Duration time : {Duration{-1}, Duration(milliseconds(99)), Duration(minutes(61))}) {
    EXPECT_FALSE(check(GivenSettings{.peer_timeout = time}).ok()) << pccl::text(time);
    EXPECT_FALSE(check(GivenSettings{.first_call_timeout = time}).ok()) << pccl::text(time);
    EXPECT_FALSE(check(GivenSettings{.call_timeout = time}).ok()) << pccl::text(time);
  }
  EXPECT_FALSE(check(GivenSettings{.peer_timeout = Duration{0}}).ok());
  EXPECT_FALSE(check(GivenSettings{.first_call_timeout = Duration{0}}).ok());
}

// Hello decoded from its bytes.
GivenSettings over_the_wire(const GivenSettings& given) {
  Hello hello;
  hello.settings = given;
  std::vector<std::byte> bytes;
  encode(hello, bytes);
  return std::get<Hello>(decode(std::span(bytes).subspan(4)).value()).settings;
}

TEST(RunSettings, ComeBackAsTheyWereInWholeMilliseconds) {
  for (const GivenSettings& given : {GivenSettings{}, give_all({}), give_all(kOther),
                                     GivenSettings{.pattern = PatternChoice::kAny}})
    EXPECT_EQ(over_the_wire(given), given);
  EXPECT_EQ(over_the_wire({.peer_timeout = std::chrono::microseconds(2500999)}).peer_timeout,
            milliseconds(2500));
}

}  // namespace
}  // namespace pccl::protocol
