#include "master/shell/keyring_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "csrc/base/text.h"
#include "tests/cpp/master/harness.h"
#include "tests/cpp/master/keyring_lines.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

struct KeyringFileTest : testing::Test {
  KeyringFileTest() { write({"alice000", "bob00000"}); }
  ~KeyringFileTest() override {
    on_loop([this] { file.reset(); });
  }

  template <typename F>
  void on_loop(F what) {
    std::promise<void> done;
    loop.post([&] {
      what();
      done.set_value();
    });
    ASSERT_EQ(done.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  }
  void write_text(const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
  }
  void write(const std::vector<TokenId>& ids) {
    std::string text = kKeyringHead;
    for (const TokenId& id : ids) text += token_line(id, secret_hex("a5"));
    write_text(text);
  }
  std::string refusal() const {
    const auto read = read_keyring(path);
    if (read.ok()) return "taken";
    EXPECT_EQ(read.status().code, Code::kSystem);
    return read.status().message;
  }
  void open() {
    auto opened = KeyringFile::open(loop, path, [this](const std::vector<TokenId>& tokens) {
      revoked.push_back(tokens);
      return tokens.size() + 10;
    });
    ASSERT_TRUE(opened.ok()) << opened.status().message;
    file = std::move(opened.value());
  }
  // "2 tokens, 12 peers", or the refusal.
  std::string read_again() {
    std::promise<std::string> answer;
    loop.post([&] {
      file->read_again([&](Result<KeyringFile::Revoked> read) {
        EXPECT_TRUE(loop.on_loop());
        if (!read.ok()) return answer.set_value(read.status().message);
        const auto& [tokens, peers] = read.value();
        answer.set_value(count_text(tokens, "token") + ", " + count_text(peers, "peer"));
      });
    });
    auto answered = answer.get_future();
    const bool ready = answered.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
    return ready ? answered.get() : "no answer";
  }
  std::vector<TokenId> ids() {
    std::vector<TokenId> all;
    on_loop([&] {
      for (const auto& [id, token] : file->keyring()) all.push_back(id);
    });
    return all;
  }

  const TempFolder temporary;
  const std::string path = temporary.path() + "/keyring";
  net::Loop loop{"test"};
  std::unique_ptr<KeyringFile> file;
  std::vector<std::vector<TokenId>> revoked;
};

TEST_F(KeyringFileTest, IsRead) {
  EXPECT_EQ(read_keyring(path).value().size(), 2u);
  open();
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(file->count_at_opening(), 2u);
  EXPECT_EQ(ids(), (std::vector<TokenId>{"alice000", "bob00000"}));
}

TEST_F(KeyringFileTest, ThatIsMissingIsRefused) {
  std::filesystem::remove(path);
  EXPECT_EQ(refusal(),
            "there is no keyring " + path + ": `pccl token new` makes one with its first token");
}

TEST_F(KeyringFileTest, ThatOthersMayUseIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0610, 0601}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    char digits[8];
    std::snprintf(digits, sizeof digits, "%04o", mode);
    EXPECT_EQ(refusal(), "the keyring " + path + " is open to others (mode " + digits +
                             "): run `chmod 600 " + path +
                             "`, and make new tokens if somebody may have read it");
  }
  ASSERT_EQ(chmod(path.c_str(), 0400), 0);
  EXPECT_EQ(refusal(), "taken");
}

TEST_F(KeyringFileTest, ThatIsNoFileIsRefused) {
  const std::string advice = ", not a file: name the file itself with --keyring";
  std::filesystem::rename(path, path + ".kept");
  std::filesystem::create_symlink(path + ".kept", path);
  EXPECT_EQ(refusal(), "the keyring " + path + " is a symbolic link" + advice);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(refusal(), "the keyring " + path + " is a directory" + advice);
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(refusal(), "the keyring " + path + " is a FIFO" + advice);
}

TEST_F(KeyringFileTest, AFileOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  EXPECT_EQ(refusal(), "the keyring " + path +
                           " belongs to another user (12345): a master reads a keyring of its own "
                           "user, or of root");
}

TEST_F(KeyringFileTest, ThatIsTooLargeIsRefused) {
  std::filesystem::resize_file(path, kKeyringBytesMax + 1);
  EXPECT_TRUE(contains(refusal(), "takes 1048577 bytes, and at most 1048576 are read"))
      << refusal();
  std::filesystem::resize_file(path, kKeyringBytesMax);
  EXPECT_TRUE(contains(refusal(), "is damaged in line 4")) << "it is read as a whole";
}

TEST_F(KeyringFileTest, ThatIsDamagedIsRefused) {
  write_text(kKeyringHead + token_line("alice000", "a5"));
  EXPECT_EQ(refusal(), "the keyring " + path +
                           " is damaged in line 2: its secret must have 64 hexadecimal digits. Put "
                           "back a whole copy, or remove the line, which revokes its token");
  const auto opened = KeyringFile::open(loop, path, nullptr);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().message, refusal());
}

TEST_F(KeyringFileTest, TokensThatLeaveItAreRevoked) {
  open();
  write({"bob00000", "carol000"});
  EXPECT_EQ(read_again(), "1 token, 11 peers");
  EXPECT_EQ(revoked, (std::vector<std::vector<TokenId>>{{"alice000"}}));
  EXPECT_EQ(ids(), (std::vector<TokenId>{"bob00000", "carol000"})) << "and new ones are known";
  EXPECT_EQ(read_again(), "0 tokens, 0 peers");
  EXPECT_EQ(revoked.size(), 1u) << "nobody is told of nothing";
  write({});
  EXPECT_EQ(read_again(), "2 tokens, 12 peers");
  EXPECT_EQ(revoked.back(), (std::vector<TokenId>{"bob00000", "carol000"}));
}

TEST_F(KeyringFileTest, ThatCannotBeReadAgainKeepsTheOldTokens) {
  open();
  write_text("dear diary");
  EXPECT_TRUE(contains(read_again(), "is damaged in line 1"));
  std::filesystem::remove(path);
  EXPECT_TRUE(contains(read_again(), "there is no keyring"));
  EXPECT_EQ(ids().size(), 2u);
  EXPECT_TRUE(revoked.empty());
}

TEST_F(KeyringFileTest, AChangeIsFoundWithoutBeingTold) {
  open();
  write({"bob00000", "carol000"});
  const auto known = [&](const TokenId& id) {
    bool found = false;
    on_loop([&] { found = file->keyring().contains(id); });
    return found;
  };
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!known("carol000") && std::chrono::steady_clock::now() < late)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(known("carol000"));
  EXPECT_FALSE(known("alice000"));
  on_loop([&] { EXPECT_EQ(revoked, std::vector<std::vector<TokenId>>{{"alice000"}}); });
  EXPECT_EQ(read_again(), "1 token, 11 peers") << "who asks a little later learns it too";
  EXPECT_EQ(read_again(), "0 tokens, 0 peers");
}

TEST_F(KeyringFileTest, NoAnswerComesAfterItsEnd) {
  open();
  bool answered = false;
  on_loop([&] {
    file->read_again([&](const Result<KeyringFile::Revoked>&) { answered = true; });
    file.reset();  // waits for the read, whose answer is posted to this loop
  });
  on_loop([] {});
  EXPECT_FALSE(answered);
}

}  // namespace
}  // namespace pccl::master
