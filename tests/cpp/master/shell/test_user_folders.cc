#include "master/shell/user_folders.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>

namespace pccl::master {
namespace {

using Folders = std::vector<std::string>;

// The variables of the test, with their old values afterwards.
class UserFoldersTest : public testing::Test {
 protected:
  UserFoldersTest() {
    for (const char* name : {"HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"}) {
      const char* value = getenv(name);
      if (value != nullptr) before_[name] = value;
      unsetenv(name);
    }
  }
  ~UserFoldersTest() override {
    for (const char* name : {"HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"}) unsetenv(name);
    for (const auto& [name, value] : before_) set(name, value);
  }
  static void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::string> before_;
};

TEST_F(UserFoldersTest, TheStateFolderIsInItsVariableOrAtHome) {
  EXPECT_FALSE(state_folder().has_value());
  set("HOME", "/h/alice");
  EXPECT_EQ(state_folder(), "/h/alice/.local/state/pccl/");
  set("XDG_STATE_HOME", "relative");
  EXPECT_EQ(state_folder(), "/h/alice/.local/state/pccl/");
  set("XDG_STATE_HOME", "/state");
  EXPECT_EQ(state_folder(), "/state/pccl/");
}

TEST_F(UserFoldersTest, TheFolderOfTheSessionComesFirst) {
  EXPECT_EQ(socket_folders(), Folders());
  set("HOME", "/h/alice");
  EXPECT_EQ(socket_folders(), (Folders{"/h/alice/.local/state/pccl/"}));
  set("XDG_RUNTIME_DIR", "/run/user/7");
  EXPECT_EQ(socket_folders(), (Folders{"/run/user/7/pccl/", "/h/alice/.local/state/pccl/"}));
}

}  // namespace
}  // namespace pccl::master
