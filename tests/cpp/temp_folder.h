// TempFolder: a folder that one test uses alone and that is deleted with this object.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace pccl {

class TempFolder {
 public:
  // `in`: the parent folder.
  explicit TempFolder(const std::string& in = testing::TempDir()) : path_(in + "/pccl.XXXXXX") {
    // POSIX requires six X at the end of the path; mkdtemp() replaces them with a unique name.
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
