#include "master/shell/files.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace pccl::master {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISREG(mode)) return "a file";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status system_error(const std::string& what) {
  const int error = errno;
  return {Code::kSystem, what + ": " + std::strerror(error), {}};
}

File open_file(const std::string& path, int flags) {
  return File(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
}

Status check(const std::string& what, const struct stat& found, const FileKind& wanted) {
  if ((found.st_mode & S_IFMT) != wanted.type) {
    return {Code::kSystem,
            what + " is " + kind_of(found.st_mode) + ", not " + wanted.name + ": " + wanted.advice,
            {}};
  }
  if (found.st_uid == ::geteuid() || found.st_uid == 0) return {};
  return {Code::kSystem,
          what + " belongs to another user (" + std::to_string(found.st_uid) +
              "): " + wanted.owner_advice,
          {}};
}

Status check_place(const std::string& what, const std::string& path, const FileKind& wanted) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 ? check(what, found, wanted) : Status{};
}

sockaddr_un socket_address(const std::string& path, const File& folder, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string reach = path + "/" + name;
  if (reach.size() >= sizeof address.sun_path)
    reach = "/proc/self/fd/" + std::to_string(folder.get()) + "/" + name;
  const size_t size = std::min(reach.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, reach.c_str(), size);
  return address;
}

std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

}  // namespace pccl::master
