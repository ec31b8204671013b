#include "master/shell/hosted_socket.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "master/shell/files.h"
#include "master/shell/socket_file.h"

namespace pccl::master {
namespace {

namespace fs = std::filesystem;

// Maximum number of sockets of one process in a folder.
constexpr int kNumbersMax = 64;
constexpr FileKind kFolder = {S_IFDIR, "a directory", "move it away",
                              "only a folder of this user is used"};

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "@tokyo.sock". Any character that a file name might lack is replaced.
std::string ending_of_host() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) name[0] = '\0';
  std::string host = name;
  for (char& c : host) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && c != '-' && c != '.') c = '_';
  }
  return "@" + host + ".sock";
}

// Whether `name` is PID or PID-NUMBER, followed by `ending`.
bool is_ours(std::string_view name, const std::string& ending) {
  if (!name.ends_with(ending)) return false;
  name.remove_suffix(ending.size());
  const size_t dash = name.find('-');
  return is_digits(name.substr(0, dash)) &&
         (dash == std::string_view::npos || is_digits(name.substr(dash + 1)));
}

// Makes the folder if there is none. Others must not be able to put files there.
Status prepare(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::path(folder).parent_path();  // without the slash at its end
  fs::create_directories(path.parent_path(), error);
  const std::string what = "the folder " + path.string();
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return system_error("cannot make " + what);
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return system_error("cannot look at " + what);
  Status status = check(what, found, kFolder);
  if (!status.ok()) return status;
  if ((found.st_mode & (S_IWGRP | S_IWOTH)) == 0 && found.st_uid == ::geteuid()) return {};
  return {Code::kSystem,
          what + " is not for this user only: run `chmod 700 " + path.string() + "`",
          {}};
}

// Removes the file only if it is the one that was found to be stale.
void remove_stale(const std::string& folder, const std::string& ending) {
  const File at(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!at.open()) return;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    struct stat before {
    }, after{};
    if (!is_ours(name, ending)) continue;
    if (::fstatat(at.get(), name.c_str(), &before, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISSOCK(before.st_mode) || has_listener(folder, at, name)) continue;
    if (::fstatat(at.get(), name.c_str(), &after, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (before.st_dev == after.st_dev && before.st_ino == after.st_ino)
      ::unlinkat(at.get(), name.c_str(), 0);
  }
}

Result<std::string> path_in(const std::string& folder) {
  const Status status = prepare(folder);
  if (!status.ok()) return status;
  const std::string ending = ending_of_host();
  remove_stale(folder, ending);
  const std::string pid = std::to_string(::getpid());
  for (int number = 1; number <= kNumbersMax; ++number) {
    std::string path = folder + pid;
    if (number > 1) path += "-" + std::to_string(number);
    path += ending;
    struct stat found {};
    if (::lstat(path.c_str(), &found) != 0 && errno == ENOENT) return path;
  }
  return Status{Code::kSystem, "the folder " + folder + " has all sockets of this process", {}};
}

}  // namespace

Result<std::string> hosted_socket_path(const std::vector<std::string>& folders) {
  Status why{Code::kSystem, "neither XDG_RUNTIME_DIR nor HOME is set", {}};
  for (const std::string& folder : folders) {
    auto path = path_in(folder);
    if (path.ok()) return path;
    why = path.status();
  }
  return why;
}

}  // namespace pccl::master
