#include "csrc/base/log_event.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace pccl {
namespace {

TEST(LogEvent, EachHasANameOfItsOwn) {
  std::set<std::string> names;
  size_t index = 0;
  for (const LogEvent event : log_events()) {
    EXPECT_EQ(static_cast<size_t>(event), index++);
    const std::string name = text(event);
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos) << name;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(index, static_cast<size_t>(LogEvent::kLinesDropped) + 1);  // the last one
}

// Programs compare them.
TEST(LogEvent, NamesStayAsTheyAre) {
  EXPECT_STREQ(text(LogEvent::kOther), "other");
  EXPECT_STREQ(text(LogEvent::kEpochBegins), "epoch_begins");
  EXPECT_STREQ(text(LogEvent::kLost), "lost");
  EXPECT_STREQ(text(LogEvent::kJournalFailed), "journal_failed");
  EXPECT_STREQ(text(LogEvent::kFindingBegins), "finding_begins");
}

}  // namespace
}  // namespace pccl
