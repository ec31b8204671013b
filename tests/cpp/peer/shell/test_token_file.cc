#include "csrc/peer/shell/token_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/cpp/temp_folder.h"

namespace pccl::peer {
namespace {

const std::string kText = "pccl1.k3v9x2mq7a1p.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

struct TokenFile : testing::Test {
  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path, std::ios::trunc) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
  }
  // Returns the reason of the refusal, without the name of the file.
  std::string refusal() const {
    const auto token = read_token(path);
    if (token.ok()) return "taken";
    EXPECT_EQ(token.status().code, Code::kSystem);
    const std::string head = "PCCL_SECRET_FILE " + path + " ";
    EXPECT_TRUE(token.status().message.starts_with(head)) << token.status().message;
    return token.status().message.substr(head.size());
  }

  const TempFolder temporary;
  const std::string path = temporary.path() + "/token";
};

TEST_F(TokenFile, IsReadWithSpaceAroundIt) {
  for (const std::string& text : {kText, kText + "\n", " \t\r\n" + kText + "\r\n\n"}) {
    write(text);
    Result<Token> token = read_token(path);
    ASSERT_TRUE(token.ok()) << token.status().message;
    EXPECT_EQ(token.value().id, "k3v9x2mq7a1p");
    EXPECT_EQ(token.value().secret.bytes()[31], std::byte{31});
  }
}

TEST_F(TokenFile, ThatIsMissingOrNoFileIsRefused) {
  EXPECT_EQ(refusal(), "cannot be opened: No such file or directory");
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  EXPECT_EQ(refusal(), "is no file");
  ASSERT_EQ(rmdir(path.c_str()), 0);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(refusal(), "is no file");
}

TEST_F(TokenFile, ThatOthersMayReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0660}) {
    write(kText, mode);
    EXPECT_EQ(refusal(), "is open to others: run `chmod 600` on it");
  }
}

TEST_F(TokenFile, ThatHoldsNoTokenIsRefused) {
  write("");
  EXPECT_EQ(refusal(), "is no token: a token begins with pccl1.");
  write("\n\n");
  EXPECT_EQ(refusal(), "is no token: a token begins with pccl1.");
  write(kText + " " + kText);
  EXPECT_EQ(refusal(), "has a secret that is damaged: was it copied as a whole?");
  write(std::string(5000, ' ') + kText);
  EXPECT_EQ(refusal(), "has more than 4096 bytes: is it the right file?");
}

}  // namespace
}  // namespace pccl::peer
