// TempFolder: a folder of a test's own, gone with it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace pccl {

class TempFolder {
 public:
  // `in`: where it is made.
  explicit TempFolder(const std::string& in = testing::TempDir()) : path_(in + "/pccl.XXXXXX") {
    // POSIX wants six X at the end of the path: mkdtemp() puts a name of its own there.
    EXPECT_NE(mkdtemp(path_.data()), nullptr) << path_;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace pccl
