#include "master/diagnosis/finding.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace pccl::master {
namespace {

TEST(Finding, EachCodeHasANameOfItsOwn) {
  std::set<std::string> names;
  constexpr int kCodes = static_cast<int>(FindingCode::kNothingWrong) + 1;
  for (int code = 0; code < kCodes; ++code) names.insert(text(static_cast<FindingCode>(code)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kCodes));
  EXPECT_FALSE(names.contains(""));
  EXPECT_TRUE(names.contains("rank_has_not_called") && names.contains("nothing_wrong"));
}

TEST(Finding, EachSeverityHasAName) {
  EXPECT_STREQ(text(Severity::kNote), "note");
  EXPECT_STREQ(text(Severity::kWarning), "warning");
  EXPECT_STREQ(text(Severity::kError), "error");
}

}  // namespace
}  // namespace pccl::master
