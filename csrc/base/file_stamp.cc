#include "csrc/base/file_stamp.h"

#include <sys/stat.h>

namespace pccl {
namespace {

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

FileStamp FileStamp::of(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return {};
  return {found.st_ino, static_cast<uint64_t>(found.st_size), found.st_mode,
          nanoseconds(found.st_mtim), nanoseconds(found.st_ctim)};
}

}  // namespace pccl
