#include "master/shell/refusal_warnings.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

using Refusal = net::Tls::Refusal;

class RefusalWarningsTest : public testing::Test {
 protected:
  std::string line(Refusal refusal, const std::string& host = "10.0.0.7") {
    return warnings.refused(refusal, host, "bad tag", now).value_or("");
  }
  RefusalWarnings warnings;
  Instant now = Instant{} + std::chrono::hours(1);
};

TEST_F(RefusalWarningsTest, ALineHasTheReasonAndTheWordsOfTheLayer) {
  EXPECT_EQ(line(Refusal::kUnknownIdentity),
            "refused 1 connection from 10.0.0.7 because of its token; the last one showed a token "
            "that is not in the keyring (bad tag)");
  EXPECT_NE(line(Refusal::kWrongKey, "10.0.0.8").find("did not know the secret of its token"),
            std::string::npos);
}

TEST_F(RefusalWarningsTest, FewLinesForManyAttempts) {
  EXPECT_NE(line(Refusal::kWrongKey), "");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(line(Refusal::kUnknownIdentity), "");
  now = now + net::NetworkWarnings::kInterval;
  EXPECT_EQ(line(Refusal::kWrongKey).find("refused 5 connections from 10.0.0.7"), 0u);
}

TEST_F(RefusalWarningsTest, PlainTextDoesNotHideARefusedToken) {
  for (int i = 0; i < 100; ++i) line(Refusal::kPlainText);
  EXPECT_NE(line(Refusal::kWrongKey), "");
}

TEST_F(RefusalWarningsTest, OtherEndsHaveNoLine) { EXPECT_EQ(line(Refusal::kOther), ""); }

}  // namespace
}  // namespace pccl::master
