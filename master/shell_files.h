// shell_files: what the shell's files have in common: a descriptor that is closed once, and the
// checks of what already lies where a file of the master belongs. In a folder that others may write
// to, somebody else can have put it there. Any thread.
#pragma once

#include <sys/stat.h>

#include <string>
#include <utility>

#include "csrc/base/status.h"

namespace pccl::master {

class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}  // below 0: none
  ~File();
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  int get() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// `what`, and why the system has just refused it.
Status system_error(const std::string& what);

// The kind of file that belongs in a place, and advice to a person who has another kind there.
struct Kind {
  mode_t type;  // S_IFREG, ...
  const char* name;
  const char* advice;
};

// Refuses what is of another kind, or belongs to neither us nor root. `what`: "the journal /x".
Status check(const std::string& what, const struct stat& found, const Kind& wanted);

// The same of what lies at `path`, a link not followed; an empty place is fine.
Status check_place(const std::string& what, const std::string& path, const Kind& wanted);

std::string folder_of(const std::string& path);

}  // namespace pccl::master
