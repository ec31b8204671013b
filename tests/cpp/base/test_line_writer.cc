#include "csrc/base/line_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace pccl {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);

std::string dropped(uint64_t count) { return "dropped " + std::to_string(count) + "\n"; }

// A pipe, and a LineWriter that writes to it.
class LineWriterTest : public testing::Test {
 protected:
  ~LineWriterTest() override {
    for (const int end : ends_) ::close(end);
  }

  // The next lines, as many as `count`.
  std::vector<std::string> lines(size_t count) {
    std::vector<std::string> found;
    while (found.size() < count) {
      size_t end = text_.find('\n');
      while (end == std::string::npos) {
        char buffer[4096];
        const ssize_t got = ::read(ends_[0], buffer, sizeof buffer);
        if (got <= 0) return found;
        text_.append(buffer, static_cast<size_t>(got));
        end = text_.find('\n');
      }
      found.push_back(text_.substr(0, end));
      text_.erase(0, end + 1);
    }
    return found;
  }

  // Pushes numbered lines of this size, so many that some are dropped. Returns their count.
  size_t push_too_many(size_t bytes) {
    const size_t count = 2 * LineWriter::kBytesMax / bytes;
    for (size_t i = 0; i < count; ++i) {
      std::string line = std::to_string(i);
      line.resize(bytes - 1, ' ');
      writer_.push(line + "\n");
    }
    return count;
  }

  static std::array<int, 2> small_pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    return ends;
  }

  std::array<int, 2> ends_ = small_pipe();
  std::string text_;
  LineWriter writer_{ends_[1], dropped};
};

TEST_F(LineWriterTest, LinesOfAThreadKeepTheirOrderAndAreWhole) {
  constexpr int kThreads = 4, kLines = 500;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this, thread] {
      for (int i = 0; i < kLines; ++i)
        writer_.push(std::to_string(thread) + " " + std::to_string(i) + "\n");
    });
  }
  std::vector<int> next(kThreads, 0);
  for (const std::string& line : lines(kThreads * kLines)) {
    const auto thread = static_cast<size_t>(line[0] - '0');
    ASSERT_LT(thread, next.size()) << line;
    EXPECT_EQ(line.substr(1), " " + std::to_string(next[thread]++));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(writer_.flush(kPatience));
}

TEST_F(LineWriterTest, WithoutAReaderLinesAreDroppedAndCounted) {
  const size_t pushed = push_too_many(1000);
  EXPECT_FALSE(writer_.flush(std::chrono::milliseconds(1)));
  std::vector<std::string> found = lines(1);
  size_t kept = 0;
  while (!found[0].starts_with("dropped ")) {
    EXPECT_EQ(std::stoul(found[0]), kept++);
    found = lines(1);
    ASSERT_EQ(found.size(), 1u);
  }
  EXPECT_EQ(found[0], "dropped " + std::to_string(pushed - kept));
  EXPECT_NEAR(static_cast<double>(kept), LineWriter::kBytesMax / 1000.0, 10);
  EXPECT_TRUE(writer_.flush(kPatience));  // the count comes although no line follows
  writer_.push("afterwards\n");
  EXPECT_EQ(lines(1)[0], "afterwards");
}

TEST_F(LineWriterTest, TheCountStandsWhereTheLinesWere) {
  push_too_many(1000);
  lines(LineWriter::kBytesMax / 1000 * 3 / 4);  // less than half of it waits
  writer_.push("afterwards\n");
  bool counted = false;
  for (std::string line; line != "afterwards";) {
    line = lines(1)[0];
    if (line.starts_with("dropped ")) {
      EXPECT_FALSE(counted);
      counted = true;
      EXPECT_EQ(lines(1)[0], "afterwards");
      break;
    }
  }
  EXPECT_TRUE(counted);
}

TEST_F(LineWriterTest, ALineLargerThanTheBoundIsWritten) {
  writer_.push(std::string(2 * LineWriter::kBytesMax, 'x') + "\n");
  EXPECT_EQ(lines(1)[0].size(), 2 * LineWriter::kBytesMax);
  EXPECT_TRUE(writer_.flush(kPatience));
}

TEST_F(LineWriterTest, AReaderThatIsGoneStopsNothing) {
  ::close(ends_[0]);
  const size_t pushed = push_too_many(1000);
  EXPECT_GT(pushed, 0u);
  EXPECT_TRUE(writer_.flush(kPatience));
  ends_[0] = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

TEST_F(LineWriterTest, ANonBlockingDescriptorLosesNothing) {
  fcntl(ends_[1], F_SETFL, O_NONBLOCK);
  constexpr size_t kLines = 1000;
  for (size_t i = 0; i < kLines; ++i) writer_.push(std::to_string(i) + std::string(50, ' ') + "\n");
  const std::vector<std::string> found = lines(kLines);
  ASSERT_EQ(found.size(), kLines);
  for (size_t i = 0; i < kLines; ++i) EXPECT_EQ(std::stoul(found[i]), i);
}

TEST_F(LineWriterTest, TheLastWordsWaitForTheirReaderUntilADeadline) {
  const auto soon = [] { return monotonic_now() + std::chrono::milliseconds(10); };
  write_before(soon(), ends_[1], std::string(4095, 'x') + "\n");
  write_before(soon(), ends_[1], "lost\n");
  std::vector<std::string> found;
  std::thread reader([&] { found = lines(3); });
  write_before(monotonic_now() + kPatience, ends_[1], std::string(9999, 'y') + "\nend\n");
  reader.join();
  EXPECT_EQ(found,
            (std::vector{std::string(4095, 'x'), std::string(9999, 'y'), std::string("end")}));
}

}  // namespace
}  // namespace pccl
