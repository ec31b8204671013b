#include "csrc/peer/shell/token_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <condition_variable>
#include <cstdio>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tests/cpp/temp_folder.h"

namespace pccl::peer {
namespace {

const std::string kText = "pccl1.k3v9x2mq7a1p.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

struct TokenFile : testing::Test {
  // Replaces the file in one step, so that nobody sees half of it.
  void write(const std::string& text, mode_t mode = 0600) const {
    const std::string fresh = path + ".new";
    std::ofstream(fresh, std::ios::trunc) << text;
    EXPECT_EQ(chmod(fresh.c_str(), mode), 0);
    EXPECT_EQ(std::rename(fresh.c_str(), path.c_str()), 0);
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

// The reports of a TokenWatch, in order: "token <id>" or "warning".
class Said {
 public:
  TokenWatch::Callbacks callbacks() {
    return {[this](const std::shared_ptr<const Token>& token) { add("token " + token->id); },
            [this](const std::string& text) { add("warning: " + text); }};
  }
  // Waits for the next thing said.
  std::string next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [this] { return !lines_.empty(); }))
      return "nothing for 20 s";
    std::string line = std::move(lines_.front());
    lines_.pop_front();
    return line;
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  }

 private:
  void add(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
};

std::string text_of(const std::string& id) {
  return "pccl1." + id + kText.substr(kText.rfind('.'));
}

std::shared_ptr<const Token> present() {
  return std::make_shared<const Token>(std::move(parse_token(kText).value()));
}

// Each wrong content is followed by a right one, which shows that nothing else was said before it.
TEST_F(TokenFile, ThatIsWatchedTellsEachNewTokenAndEachFaultOnce) {
  write(kText);
  Said said;
  const TokenWatch watch(path, present(), said.callbacks());
  ASSERT_TRUE(watch.status().ok());
  write(text_of("second00"));
  EXPECT_EQ(said.next(), "token second00");
  write("pccl1.half");
  EXPECT_TRUE(said.next().starts_with("warning: PCCL_SECRET_FILE " + path + " has "));
  std::remove(path.c_str());  // another fault, of which nothing is said
  write(text_of("second00"));
  write(text_of("third000"));
  EXPECT_EQ(said.next(), "token third000");
  write(text_of("fourth00"), 0640);
  const std::string open = said.next();
  EXPECT_TRUE(open.ends_with("run `chmod 600` on it. This peer keeps the token that it has"))
      << open;
  EXPECT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(said.next(), "token fourth00");
  EXPECT_EQ(said.count(), 0u);
}

// The file may have changed between the reading of the present token and the first look.
TEST_F(TokenFile, ThatIsWatchedIsReadAtOnce) {
  {
    Said said;
    const TokenWatch watch(path, present(), said.callbacks());
    EXPECT_TRUE(said.next().starts_with("warning: PCCL_SECRET_FILE " + path + " cannot be opened"));
  }
  std::string other = kText;
  other[other.size() - 5] = 'A';  // the same id with another secret
  write(other);
  Said said;
  const TokenWatch watch(path, present(), said.callbacks());
  EXPECT_EQ(said.next(), "token k3v9x2mq7a1p");
}

}  // namespace
}  // namespace pccl::peer
