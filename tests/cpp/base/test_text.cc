#include "csrc/base/text.h"

#include <gtest/gtest.h>

namespace pccl {
namespace {

void expect_as_it_is(const std::string& text) {
  EXPECT_TRUE(is_printable(text)) << text;
  EXPECT_EQ(printable(text), text);
}
void expect_escaped(std::string_view text, const std::string& shown) {
  EXPECT_FALSE(is_printable(text)) << shown;
  EXPECT_EQ(printable(text), shown);
  EXPECT_EQ(printable(printable(text)), shown) << "twice is as once";
}

TEST(Text, OrdinaryTextStaysAsItIs) {
  expect_as_it_is("");
  expect_as_it_is(R"(peer 1.2 (rank 0, 10.0.0.7:48201): "all" is \lost~)");
  expect_as_it_is("Zürich, 東京, Αθήνα, עברית, 🚀");
  expect_as_it_is("\u00a0\u3000\ue000\U0010ffff");
}

TEST(Text, ControlsAreEscaped) {
  expect_escaped("prod\"\npccl 00:00:00.000 error: forged",
                 "prod\"\\npccl 00:00:00.000 error: forged");
  expect_escaped("\t\r\x1b[2J\x7f", "\\t\\r\\x1b[2J\\x7f");
  expect_escaped(std::string_view("a\0b", 3), "a\\x00b");
  expect_escaped("\u0080\u009b", "\\u0080\\u009b");
}

TEST(Text, FormattingAndHiddenCharactersAreEscaped) {
  expect_escaped("a\u202eb", "a\\u202eb");
  expect_escaped("\u200e\u200f\u202a\u202c\u2066\u2069\u061c",
                 "\\u200e\\u200f\\u202a\\u202c\\u2066\\u2069\\u061c");
  expect_escaped("\u2028\u2029\ufeff", "\\u2028\\u2029\\ufeff");
  expect_escaped("\u200b\u200c\u200d\u00ad\u2060", "\\u200b\\u200c\\u200d\\u00ad\\u2060");
  expect_escaped("\U000e0041", "\\U000e0041");
}

TEST(Text, InvalidUtf8IsEscapedByteByByte) {
  expect_escaped(
      "a\xff"
      "b",
      "a\\xffb");
  expect_escaped("\xc3", "\\xc3");  // truncated
  expect_escaped(
      "\xe6\x9d"
      "x",
      "\\xe6\\x9dx");                                 // truncated before a letter
  expect_escaped("\xbf\xc3\xbc", "\\xbfü");           // a continuation byte without a lead byte
  expect_escaped("\xc0\x8a", "\\xc0\\x8a");           // a newline, overlong in two bytes
  expect_escaped("\xe0\x80\x8a", "\\xe0\\x80\\x8a");  // a newline, overlong in three bytes
  expect_escaped("\xed\xa0\x80", "\\xed\\xa0\\x80");  // one half of a UTF-16 surrogate pair
  expect_escaped("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");  // above the last code point
}

TEST(Text, Counts) {
  EXPECT_EQ(count_text(1, "member"), "1 member");
  EXPECT_EQ(count_text(0, "member"), "0 members");
}

TEST(Text, CutsBetweenCharacters) {
  EXPECT_EQ(cut("short", 5), "short");
  EXPECT_EQ(cut("short", 4), "shor");
  EXPECT_EQ(cut("a\xc3\xa4", 2), "a") << "the second character has two bytes";
  EXPECT_EQ(cut("a\xc3\xa4", 3), "a\xc3\xa4");
  EXPECT_EQ(cut("\x80\x80", 1), "") << "no character begins in it";
}

}  // namespace
}  // namespace pccl
