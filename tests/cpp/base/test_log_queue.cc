#include "csrc/base/log_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>

namespace pccl {
namespace {

using std::chrono::seconds;

LogRecord numbered(size_t number) {
  LogRecord record{LogLevel::kInfo, LogEvent::kOther, std::to_string(number)};
  record.since_1970 = std::chrono::milliseconds(number);
  return record;
}

TEST(LogQueue, AClosedOneTakesNothing) {
  LogQueue queue;
  EXPECT_FALSE(queue.push(numbered(1)));
  EXPECT_TRUE(queue.take(seconds(60)).empty());
  queue.open();
  EXPECT_TRUE(queue.push(numbered(2)));
  EXPECT_EQ(queue.close().size(), 1u);
  EXPECT_FALSE(queue.push(numbered(3)));
}

TEST(LogQueue, RecordsComeInTheirOrder) {
  LogQueue queue;
  queue.open();
  for (size_t i = 0; i < 3; ++i) queue.push(numbered(i));
  const auto taken = queue.take(Duration(0));
  ASSERT_EQ(taken.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(taken[i].text, std::to_string(i));
  EXPECT_TRUE(queue.take(Duration(0)).empty());
}

TEST(LogQueue, AFullOneDropsAndCounts) {
  LogQueue queue;
  queue.open();
  const size_t count = LogQueue::kRecordsMax + 3;
  for (size_t i = 0; i < count; ++i) EXPECT_TRUE(queue.push(numbered(i)));
  const auto taken = queue.take(Duration(0));
  ASSERT_EQ(taken.size(), LogQueue::kRecordsMax + 1);
  EXPECT_EQ(taken[LogQueue::kRecordsMax - 1].text, std::to_string(LogQueue::kRecordsMax - 1));
  EXPECT_EQ(taken.back().event, LogEvent::kLinesDropped);
  EXPECT_EQ(taken.back().text, "dropped 3 lines of this log here: they were taken too slowly");
  EXPECT_EQ(taken.back().since_1970.count(), static_cast<int64_t>(count - 1));
  EXPECT_TRUE(queue.take(Duration(0)).empty());
}

TEST(LogQueue, ATakerIsWoken) {
  LogQueue queue;
  queue.open();
  auto taken = std::async(std::launch::async, [&] { return queue.take(seconds(60)); });
  queue.push(numbered(7));
  EXPECT_EQ(taken.get().size(), 1u);
  auto none = std::async(std::launch::async, [&] { return queue.take(seconds(60)); });
  queue.close();
  ASSERT_EQ(none.wait_for(seconds(30)), std::future_status::ready);
  EXPECT_TRUE(none.get().empty());
}

}  // namespace
}  // namespace pccl
