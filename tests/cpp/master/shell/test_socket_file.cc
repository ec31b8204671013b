#include "master/shell/socket_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/cpp/master/asker.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

constexpr SocketFile::Use kUse = {.name = "the socket of a test",
                                  .move_advice = "move it away",
                                  .other_advice = "name another",
                                  .queue = 4};

struct SocketFileTest : testing::Test {
  // The reason why it did not open; empty if it did.
  std::string open() {
    auto opened = SocketFile::open(path, kUse);
    if (!opened.ok()) return opened.status().message;
    file.emplace(std::move(opened.value()));
    return "";
  }
  const TempFolder temporary;
  const std::string path = temporary.path() + "/test.sock";
  std::optional<SocketFile> file;
};

// test_control_socket.cc tests the file at its path: rights, replacement, removal.
TEST_F(SocketFileTest, ListensAtItsPath) {
  ASSERT_EQ(open(), "");
  EXPECT_TRUE(has_listener(path));
  const Asker asker(path);
  const net::Socket listening = file->take_socket();
  const net::Socket accepted(accept(listening.fd(), nullptr, nullptr));
  ASSERT_TRUE(accepted);
  EXPECT_TRUE(SocketFile::is_trusted(accepted));
}

TEST_F(SocketFileTest, AMovedObjectRemovesTheFileOnce) {
  ASSERT_EQ(open(), "");
  std::optional<SocketFile> moved(std::move(*file));
  file.reset();
  EXPECT_TRUE(std::filesystem::exists(path));
  moved.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(SocketFileTest, AStaleSocketHasNoListener) {
  EXPECT_FALSE(has_listener(path)) << "there is none";
  EXPECT_FALSE(has_listener(path + "/deeper")) << "there is no folder";
  ASSERT_EQ(open(), "");
  std::filesystem::create_hard_link(path, path + ".kept");
  file.reset();
  EXPECT_FALSE(has_listener(path + ".kept"));
  std::ofstream(path) << "dear diary";
  EXPECT_FALSE(has_listener(path)) << "a file is no socket";
}

TEST_F(SocketFileTest, APathThatCannotBeIsRefused) {
  std::ofstream(path) << "dear diary";
  EXPECT_EQ(open(), "the socket of a test " + path + " is a file, not a socket: move it away");
  EXPECT_TRUE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace pccl::master
