#include "csrc/peer/token_choice.h"

#include <gtest/gtest.h>

namespace pccl::peer {
namespace {

using std::chrono::seconds;

class TokenChoiceTest : public testing::Test {
 protected:
  TokenChoiceTest() {
    context_.effects = &effects_;
    context_.options.secured = true;
    context_.options.master_text = "host:1";
  }
  void pass(Duration duration) { context_.now = context_.now + duration; }
  // One connection that the master answers, with the token that is chosen.
  uint32_t answered() {
    const uint32_t token = choice_.choose();
    choice_.proven();
    choice_.check();
    return token;
  }
  // One connection that the master refuses, with the token that is chosen.
  uint32_t refused(bool another = true) {
    const uint32_t token = choice_.choose();
    EXPECT_EQ(choice_.refused("it is unknown"), another);
    choice_.check();
    return token;
  }
  // Takes the lines that were logged, one a line, and the tokens that were forgotten.
  std::string said() {
    std::string out;
    for (const Effect& effect : effects_) {
      if (const auto* log = std::get_if<Log>(&effect))
        out += (log->level == LogLevel::kWarning ? "warn: " : "info: ") + log->text + "\n";
      if (const auto* forget = std::get_if<ForgetTokens>(&effect))
        out += "forget before " + std::to_string(forget->before) + "\n";
    }
    effects_.clear();
    return out;
  }

  Context context_;
  Effects effects_;
  TokenChoice choice_{context_};
};

TEST_F(TokenChoiceTest, OneTokenIsShownAlways) {
  EXPECT_EQ(refused(false), 1u);
  EXPECT_EQ(answered(), 1u);
  EXPECT_EQ(refused(false), 1u);
  EXPECT_FALSE(choice_.due());
  EXPECT_EQ(choice_.deadline(), std::nullopt);
  EXPECT_EQ(said(), "");
}

TEST_F(TokenChoiceTest, ANewTokenIsShownAtOnce) {
  answered();
  choice_.read(2);
  EXPECT_TRUE(choice_.due());
  EXPECT_EQ(*choice_.deadline(), context_.now);
  EXPECT_EQ(answered(), 2u);
  EXPECT_FALSE(choice_.due());
  EXPECT_EQ(said(),
            "info: the master at host:1 has taken the new token of this peer\n"
            "forget before 2\n");
  EXPECT_EQ(answered(), 2u);
  EXPECT_EQ(said(), "");
}

TEST_F(TokenChoiceTest, ARefusedTokenIsShownAgainAfterAPauseThatDoubles) {
  answered();
  choice_.read(2);
  EXPECT_EQ(refused(), 2u);
  EXPECT_EQ(said(),
            "warn: the master at host:1 refuses the new token of this peer (it is unknown): "
            "it goes on with the token before, and tries the new one again from time to "
            "time\n");
  for (const int pause : {2, 4, 8, 16, 32, 60, 60}) {
    EXPECT_EQ(answered(), 1u);
    EXPECT_EQ(*choice_.deadline(), context_.now + seconds(pause));
    pass(seconds(pause) - Duration{1});
    EXPECT_FALSE(choice_.due());
    pass(Duration{1});
    EXPECT_TRUE(choice_.due());
    EXPECT_EQ(refused(), 2u);
  }
  EXPECT_EQ(said(), "");
  pass(seconds(60));
  EXPECT_EQ(answered(), 2u);
  EXPECT_EQ(said(),
            "warn: the master at host:1 has taken the new token of this peer\n"
            "forget before 2\n");
}

// The next file may be right, so it does not pay for the one before.
TEST_F(TokenChoiceTest, AnotherTokenBeginsAnew) {
  answered();
  choice_.read(2);
  refused();
  pass(seconds(2));
  refused();
  EXPECT_EQ(answered(), 1u);
  said();
  choice_.read(3);
  EXPECT_TRUE(choice_.due());
  EXPECT_EQ(refused(), 3u);
  EXPECT_NE(said(), "");
  EXPECT_EQ(answered(), 1u);
  EXPECT_EQ(*choice_.deadline(), context_.now + TokenChoice::kPauseMin);
}

TEST_F(TokenChoiceTest, IfTheProvenTokenIsRefusedTheNewestIsShownAgain) {
  answered();
  choice_.read(2);
  EXPECT_EQ(refused(), 2u);
  EXPECT_EQ(refused(), 1u);  // it was revoked meanwhile
  EXPECT_EQ(refused(), 2u);
  EXPECT_EQ(refused(), 1u);
  EXPECT_EQ(answered(), 2u);
}

TEST_F(TokenChoiceTest, ATokenThatComesDuringAConnectionIsShownByTheNextOne) {
  EXPECT_EQ(choice_.choose(), 1u);
  choice_.read(2);
  EXPECT_TRUE(choice_.refused("it is unknown"));  // the first connection is not the end
  EXPECT_EQ(choice_.choose(), 2u);
  choice_.read(3);
  choice_.proven();
  EXPECT_TRUE(choice_.due());
  EXPECT_EQ(answered(), 3u);
}

TEST_F(TokenChoiceTest, BeforeTheFirstAnswerThereIsNoTokenToGoBackTo) {
  choice_.read(2);
  EXPECT_EQ(refused(false), 2u);
}

}  // namespace
}  // namespace pccl::peer
