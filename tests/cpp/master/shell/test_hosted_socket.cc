#include "master/shell/hosted_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

namespace fs = std::filesystem;

class HostedSocketTest : public testing::Test {
 protected:
  ~HostedSocketTest() override {
    for (const int fd : open_) close(fd);
  }
  std::string path() {
    const auto found = hosted_socket_path({folder});
    return found.ok() ? found.value() : "failed: " + found.status().message;
  }
  // Listens there; a process that has died leaves the file without a listener.
  void listen_at(const std::string& at, bool dies = false) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ASSERT_LT(at.size(), sizeof address.sun_path);
    std::memcpy(address.sun_path, at.c_str(), at.size());
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << at;
    ASSERT_EQ(listen(fd, 1), 0);
    dies ? static_cast<void>(close(fd)) : open_.push_back(fd);
  }
  static mode_t mode_of(const std::string& at) {
    struct stat found {};
    EXPECT_EQ(stat(at.c_str(), &found), 0) << at;
    return found.st_mode & 07777;
  }
  // "/.../4711@tokyo.sock" with another number of a process.
  std::string of_process(const std::string& pid) {
    const std::string mine = path();
    return folder + pid + mine.substr(mine.find('@'));
  }

  const TempFolder temporary{"/tmp"};
  const std::string folder = temporary.path() + "/run/pccl/";

 private:
  std::vector<int> open_;
};

TEST_F(HostedSocketTest, ThePathNamesTheProcessInAPrivateFolder) {
  EXPECT_TRUE(path().starts_with(folder + std::to_string(getpid()) + "@")) << path();
  EXPECT_TRUE(path().ends_with(".sock"));
  EXPECT_EQ(mode_of(folder), 0700u);
}

TEST_F(HostedSocketTest, ASecondMasterOfTheProcessHasANumber) {
  listen_at(path());
  EXPECT_TRUE(path().starts_with(folder + std::to_string(getpid()) + "-2@")) << path();
}

TEST_F(HostedSocketTest, SocketsOfDeadProcessesAreRemovedAndNoOthers) {
  const std::string dead = of_process("1"), live = of_process("2");
  const std::string elsewhere = folder + "1@another-host.sock", other = folder + "master.sock";
  listen_at(dead, true);
  listen_at(live);
  listen_at(elsewhere, true);
  listen_at(other, true);
  std::ofstream(of_process("3")) << "a file";
  path();
  EXPECT_FALSE(fs::exists(dead));
  for (const std::string& kept : {live, elsewhere, other, of_process("3")})
    EXPECT_TRUE(fs::exists(kept)) << kept;
}

TEST_F(HostedSocketTest, AFolderThatOthersMayWriteToIsNotUsed) {
  path();
  chmod(folder.c_str(), 0770);
  EXPECT_TRUE(path().starts_with("failed: the folder ")) << path();
  EXPECT_TRUE(path().ends_with(" is not for this user only: run `chmod 700 " +
                               folder.substr(0, folder.size() - 1) + "`"))
      << path();
  const auto second = hosted_socket_path({folder, temporary.path() + "/second/pccl/"});
  ASSERT_TRUE(second.ok()) << second.status().message;
  EXPECT_TRUE(second.value().starts_with(temporary.path() + "/second/pccl/"));
}

TEST_F(HostedSocketTest, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(temporary.path() + "/run") << "a file";
  EXPECT_TRUE(path().starts_with("failed: cannot make the folder ")) << path();
  EXPECT_EQ(hosted_socket_path({}).status().message, "neither XDG_RUNTIME_DIR nor HOME is set");
}

}  // namespace
}  // namespace pccl::master
