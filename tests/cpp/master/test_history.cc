#include "master/history.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"

namespace pccl::master {
namespace {

Instant second(int count) { return {std::chrono::seconds(count)}; }

TEST(History, KeepsTheLastEvents) {
  History history;
  for (int i = 0; i < 8; ++i) history.note(second(i), LogLevel::kInfo, std::to_string(i));
  ASSERT_EQ(history.events().size(), History::kEventsMax);
  EXPECT_EQ(history.events().front().text, "3");
  EXPECT_EQ(history.events().back().text, "7");
  history.check();
}

TEST(History, ARepeatedEventTakesThePlaceOfTheEarlierOne) {
  History history;
  history.note(second(1), LogLevel::kInfo, "again");
  history.note(second(2), LogLevel::kInfo, "once");
  history.note(second(3), LogLevel::kInfo, "again");
  ASSERT_EQ(history.events().size(), 2u);
  EXPECT_EQ(history.events().back().at, second(3));
  history.check();
}

TEST(History, KeepsTheLastRefusalsAndBoundsTheirTexts) {
  History history;
  for (int i = 0; i < 9; ++i) {
    history.refused({second(i),
                     History::Cause::kTerms,
                     {},
                     "x",
                     std::to_string(i) + std::string(2 * protocol::kTextBytesMax, '.')});
  }
  ASSERT_EQ(history.refusals().size(), History::kRefusalsMax);
  EXPECT_EQ(history.refusals().back().text.size(), protocol::kTextBytesMax);
  EXPECT_EQ(history.refusals().back().text[0], '8');
  history.check();
}

TEST(History, ASuccessOfAGroupEndsItsRefusalsOfAState) {
  History history;
  history.refused({second(1), History::Cause::kState, {1}, "x", "one"});
  history.refused({second(2), History::Cause::kState, {2}, "x", "two"});
  history.refused({second(3), History::Cause::kTerms, {1}, "x", "terms"});
  history.agreed({1});
  ASSERT_EQ(history.refusals().size(), 2u);
  EXPECT_EQ(history.refusals()[0].text, "two");
}

TEST(History, EachLevelHasAName) {
  EXPECT_STREQ(level_text(LogLevel::kWarning), "warning");
  EXPECT_STREQ(level_text(LogLevel::kInfo), "info");
}

}  // namespace
}  // namespace pccl::master
