// FileStamp shows whether a file has changed, without reading it, so that the file can be checked
// often. A change of the file's mode changes the stamp, too: the file may be readable now.
#pragma once

#include <cstdint>
#include <string>

namespace pccl {

struct FileStamp {
  uint64_t inode = 0, size = 0;
  uint32_t mode = 0;
  // `modified`: when the content last changed. `changed`: when the content or the attributes last
  // changed. Both in nanoseconds.
  int64_t modified = 0, changed = 0;
  bool operator==(const FileStamp&) const = default;

  // Returns the stamp of the file at `path`, after following links. Returns the default stamp if
  // stat() fails.
  static FileStamp of(const std::string& path);
};

}  // namespace pccl
