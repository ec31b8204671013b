// SocketFile: a Unix socket that listens at a path, for the user of this process and root only. The
// file is made under a random name, gets its rights, and is then renamed to its path. So no client
// finds a socket that is open to others or not ready.
// Invariant: the destructor removes the file, unless another file has taken its place, or this is a
// forked child.
// Failure: open() fails with kSystem if another kind of file is at the path, or if the system
// refuses.
#pragma once

#include <sys/stat.h>

#include <string>

#include "csrc/base/result.h"
#include "csrc/net/socket.h"
#include "master/shell/files.h"

namespace pccl::master {

class SocketFile {
 public:
  // The words for its error texts, and the length of its queue.
  struct Use {
    const char* name;          // "the control socket"
    const char* move_advice;   // if another kind of file is at the path
    const char* other_advice;  // if the path cannot be used
    int queue;
  };

  // Replaces the socket that a dead process has left at `path`. REQUIRES: the caller knows that no
  // living process has it, for example by a lock, or by has_listener().
  static Result<SocketFile> open(const std::string& path, const Use& use);
  ~SocketFile();
  SocketFile(SocketFile&& other) noexcept = default;
  SocketFile& operator=(SocketFile&& other) = delete;

  net::Socket take_socket() { return std::move(socket_); }
  // Whether the other end of an accepted connection is a process of our user or of root. The rights
  // of the file already ensure this.
  static bool is_trusted(const net::Socket& accepted);

 private:
  explicit SocketFile(std::string path) : path_(std::move(path)) {}
  Status make(const Use& use);
  Status take_place(const Use& use, const std::string& passing);
  Status refusal(const Use& use, const std::string& what) const;

  std::string path_;
  unsigned fork_count_ = 0;
  File folder_;          // closed: there is no file to remove
  struct stat ours_ {};  // the socket's file, once it is at its path
  net::Socket socket_;
};

// Whether a process listens on the socket `name` in `folder`, which `at` has open. A socket whose
// queue is full has a process.
bool has_listener(const std::string& folder, const File& at, const std::string& name);
// Likewise for the socket at `path`. False if there is none.
bool has_listener(const std::string& path);

}  // namespace pccl::master
