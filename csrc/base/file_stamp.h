// FileStamp distinguishes the contents of a file without reading it, so that a file can be checked
// often. A change of its mode gives it another stamp, too: it may be readable now.
#pragma once

#include <cstdint>
#include <string>

namespace pccl {

struct FileStamp {
  uint64_t inode = 0, size = 0;
  uint32_t mode = 0;
  // Times of the last change of the content, and of the last change of anything, in nanoseconds.
  int64_t modified = 0, changed = 0;
  bool operator==(const FileStamp&) const = default;

  // Follows links. A file that cannot be looked at has the default stamp.
  static FileStamp of(const std::string& path);
};

}  // namespace pccl
