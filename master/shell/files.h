// files: helpers for the files of the shell: a descriptor that is closed once, and checks of a file
// that already exists where the master wants its own. If others can write to the folder, such a
// file may be theirs. Any thread.
#pragma once

#include <sys/stat.h>
#include <sys/un.h>

#include <string>
#include <utility>

#include "csrc/base/status.h"

namespace pccl::master {

class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}  // below 0: no file
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

// `what`, followed by the text of errno.
Status system_error(const std::string& what);

// Opens `path`. Does not follow a link in its last part, and does not wait for the other end of a
// FIFO. A new file is for its owner only.
File open_file(const std::string& path, int flags);

// The wanted type of a file, and the advice if it has another type or belongs to another user.
struct FileKind {
  mode_t type;  // S_IFREG, ...
  const char* name;
  const char* advice;
  const char* owner_advice;
};

// The advice for the files of a journal.
inline constexpr const char* kOtherJournal =
    "name another with --journal, or do without (--no-journal)";

// Refuses a file of another type, or one that belongs to neither us nor root. `what`: for example
// "the journal /x".
Status check(const std::string& what, const struct stat& found, const FileKind& wanted);

// The same check of the file at `path`, without following a link. If there is no file, it passes.
Status check_place(const std::string& what, const std::string& path, const FileKind& wanted);

std::string folder_of(const std::string& path);

// The address of a Unix socket `name` in a folder. It names the folder by its descriptor if the
// path is longer than an address. So `folder` stays open while the address is used.
sockaddr_un socket_address(const std::string& path, const File& folder, const std::string& name);

}  // namespace pccl::master
