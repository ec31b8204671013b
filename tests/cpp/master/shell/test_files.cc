// The tests of the journal and of the control socket check that both apply these checks.
#include "master/shell/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace pccl::master {
namespace {

constexpr FileKind kFile = {S_IFREG, "a file", "move it", "take another"};

TEST(ShellFiles, ADescriptorIsClosedOnce) {
  const int raw = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  {
    File file(raw);
    File other;
    other = std::move(file);
    EXPECT_FALSE(file.open());
    EXPECT_EQ(other.get(), raw);
    EXPECT_NE(fcntl(raw, F_GETFD), -1);
  }
  EXPECT_EQ(fcntl(raw, F_GETFD), -1);
}

TEST(ShellFiles, ACheckSaysWhatIsThereAndWhatToDo) {
  struct stat found {};
  found.st_uid = geteuid();
  found.st_mode = S_IFREG;
  EXPECT_TRUE(check("it", found, kFile).ok());
  found.st_mode = S_IFSOCK;
  EXPECT_EQ(check("it", found, kFile).message, "it is a socket, not a file: move it");
  found.st_mode = S_IFREG;
  found.st_uid = geteuid() + 1;
  EXPECT_EQ(check("it", found, kFile).message,
            "it belongs to another user (" + std::to_string(found.st_uid) + "): take another");
  found.st_uid = 0;
  EXPECT_TRUE(check("it", found, kFile).ok()) << "root may do as it likes anyhow";
}

TEST(ShellFiles, AnEmptyPlaceIsFine) {
  EXPECT_TRUE(check_place("it", testing::TempDir() + "nothing/here", kFile).ok());
  EXPECT_EQ(check_place("it", testing::TempDir(), kFile).message,
            "it is a directory, not a file: move it");
}

TEST(ShellFiles, EveryPathHasAFolder) {
  EXPECT_EQ(folder_of("/a/b"), "/a");
  EXPECT_EQ(folder_of("b"), ".");
}

}  // namespace
}  // namespace pccl::master
