#include "master/shell/socket_file.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <random>
#include <utility>

#include "csrc/net/descriptors.h"

namespace pccl::master {
namespace {

constexpr mode_t kRights = 0600;

// A temporary name of the socket. It is short, because an address has room for 107 bytes only.
std::string passing_name() { return ".pccl-" + std::to_string(std::random_device()()); }

net::Socket make_socket(int flags) {
  const net::ForkGuard guard;
  return net::Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

File open_folder(const std::string& path) {
  return File(::open(folder_of(path).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

std::string name_in_folder(const std::string& path) {
  return std::filesystem::path(path).filename();
}

FileKind kind_of(const SocketFile::Use& use) {
  return {S_IFSOCK, "a socket", use.move_advice, use.other_advice};
}

}  // namespace

Result<SocketFile> SocketFile::open(const std::string& path, const Use& use) {
  SocketFile file(path);
  const Status status = file.make(use);
  if (!status.ok()) return status;
  return file;
}

Status SocketFile::make(const Use& use) {
  const Status status = check_place(use.name + (" " + path_), path_, kind_of(use));
  if (!status.ok()) return status;
  File folder = open_folder(path_);
  if (!folder.open()) return refusal(use, "cannot open the folder of");
  socket_ = make_socket(0);
  if (!socket_) return refusal(use, "cannot make");
  const std::string passing = passing_name();
  // The path of the folder may be longer than an address.
  const sockaddr_un address = socket_address(folder_of(path_), folder, passing);
  if (::bind(socket_.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return refusal(use, "cannot make");
  std::swap(folder_, folder);
  Status placed = take_place(use, passing);
  if (placed.ok()) {
    fork_count_ = net::fork_count();
    return placed;
  }
  ::unlinkat(folder_.get(), passing.c_str(), 0);
  folder_ = File();
  return placed;
}

// The umask of the process has limited the rights of the file. The umask belongs to the whole
// process, so the rights are set here instead.
Status SocketFile::take_place(const Use& use, const std::string& passing) {
  if (::fchmodat(folder_.get(), passing.c_str(), kRights, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::fstatat(folder_.get(), passing.c_str(), &ours_, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::listen(socket_.fd(), use.queue) != 0)
    return refusal(use, "cannot prepare");
  const Status status = check(use.name + (" " + path_), ours_, kind_of(use));
  if (!status.ok()) return status;
  const std::string name = name_in_folder(path_);
  if (::renameat(folder_.get(), passing.c_str(), folder_.get(), name.c_str()) != 0)
    return refusal(use, "cannot put into its place");
  return {};
}

Status SocketFile::refusal(const Use& use, const std::string& what) const {
  return system_error(what + " " + use.name + " " + path_ + " (" + use.other_advice + ")");
}

SocketFile::~SocketFile() {
  if (!folder_.open() || fork_count_ != net::fork_count()) return;  // the file is the parent's
  const std::string name = name_in_folder(path_);
  struct stat found {};
  if (::fstatat(folder_.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (found.st_dev == ours_.st_dev && found.st_ino == ours_.st_ino)
    ::unlinkat(folder_.get(), name.c_str(), 0);
}

bool SocketFile::is_trusted(const net::Socket& accepted) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(accepted.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

bool has_listener(const std::string& folder, const File& at, const std::string& name) {
  const net::Socket socket = make_socket(SOCK_NONBLOCK);
  if (!socket) return true;
  const sockaddr_un address = socket_address(folder, at, name);
  const bool connected =
      ::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  return connected || errno != ECONNREFUSED;
}

bool has_listener(const std::string& path) {
  const File folder = open_folder(path);
  struct stat found {};
  const std::string name = name_in_folder(path);
  return folder.open() && ::fstatat(folder.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISSOCK(found.st_mode) && has_listener(folder_of(path), folder, name);
}

}  // namespace pccl::master
