#include "csrc/base/file_stamp.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "csrc/base/clock.h"
#include "tests/cpp/temp_folder.h"

namespace pccl {
namespace {

// Sets the times of a file to the same instant.
void set_times(const std::string& path) {
  const timespec both[2] = {{1000, 5}, {1000, 5}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), both, 0), 0);
}

TEST(FileStamp, StaysWhileNothingChanges) {
  const TempFolder folder;
  const std::string path = folder.path() + "/file";
  EXPECT_EQ(FileStamp::of(path), FileStamp{});
  std::ofstream(path) << "one";
  const FileStamp before = FileStamp::of(path);
  EXPECT_NE(before, FileStamp{});
  std::string read;
  std::ifstream(path) >> read;
  EXPECT_EQ(FileStamp::of(path), before);
  std::remove(path.c_str());
  EXPECT_EQ(FileStamp::of(path), FileStamp{});
}

TEST(FileStamp, SeesEachKindOfChange) {
  const TempFolder folder;
  const std::string path = folder.path() + "/file";
  std::ofstream(path) << "one";
  set_times(path);
  FileStamp before = FileStamp::of(path);
  std::ofstream(path) << "longer";
  set_times(path);
  EXPECT_NE(FileStamp::of(path).size, before.size);

  before = FileStamp::of(path);
  const timespec later[2] = {{1000, 5}, {1000, 6}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), later, 0), 0);
  EXPECT_EQ(FileStamp::of(path).modified, before.modified + 1);

  std::ofstream(path + ".new") << "longer";
  set_times(path + ".new");
  before = FileStamp::of(path);
  ASSERT_EQ(std::rename((path + ".new").c_str(), path.c_str()), 0);
  EXPECT_NE(FileStamp::of(path).inode, before.inode);

  before = FileStamp::of(path);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_NE(FileStamp::of(path).mode, before.mode);
}

// For example `cp --preserve`, since all tokens have the same size. The kernel may give two changes
// within its tick the same time, so the change is repeated until the time is another.
TEST(FileStamp, SeesAChangeThatKeepsTheTimeOfTheContent) {
  const TempFolder folder;
  const std::string path = folder.path() + "/file";
  std::ofstream(path) << "one";
  set_times(path);
  const FileStamp before = FileStamp::of(path);
  const Instant until = monotonic_now() + std::chrono::seconds(10);
  while (FileStamp::of(path) == before && monotonic_now() < until) {
    std::ofstream(path) << "two";
    set_times(path);
  }
  EXPECT_NE(FileStamp::of(path), before);
}

}  // namespace
}  // namespace pccl
