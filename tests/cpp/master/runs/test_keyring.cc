#include "master/runs/keyring.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/keyring_lines.h"

namespace pccl::master {
namespace {

const std::string kSomeSecret = secret_hex("a5");

std::string keyring_refusal(const std::string& text) {
  auto keyring = parse_keyring(text);
  return keyring.ok() ? "taken" : keyring.status().message;
}

// The refusal of a keyring with this line after a right one; its advice is left out.
std::string line_refusal(const std::string& line) {
  const std::string first = token_line("first000", secret_hex("01"));
  const std::string said = keyring_refusal(kKeyringHead + first + line + "\n");
  const std::string advice = ". Put back a whole copy, or remove the line, which revokes its token";
  if (!said.ends_with(advice)) return said;
  return said.substr(0, said.size() - advice.size());
}

TEST(Keyring, IsRead) {
  auto read = parse_keyring(
      kKeyringHead + token_line("k3v9x2mq", kSomeSecret) +
      token_line("0123456789abcdef", secret_hex("00"), "[\"night\",\"t\xc3\xa4glich\"]"));
  ASSERT_TRUE(read.ok()) << read.status().message;
  const Keyring& keyring = read.value();
  ASSERT_EQ(keyring.size(), 2u);
  const Token& one = keyring.at("k3v9x2mq");
  EXPECT_EQ(one.name, "alice");
  EXPECT_EQ(one.runs, std::vector<std::string>()) << "all runs";
  EXPECT_EQ(one.secret.bytes()[31], std::byte{0xa5});
  const Token& other = keyring.at("0123456789abcdef");
  EXPECT_EQ(other.runs, (std::vector<std::string>{"night", "t\xc3\xa4glich"}));
  EXPECT_EQ(other.secret.bytes()[0], std::byte{0x00});
}

TEST(Keyring, MayHaveNoTokensAndNoLastNewline) {
  EXPECT_TRUE(parse_keyring(kKeyringHead).value().empty());
  EXPECT_TRUE(parse_keyring("{\"pccl_keyring\":1}").value().empty());
  std::string text = kKeyringHead + token_line("k3v9x2mq", kSomeSecret);
  text.pop_back();
  EXPECT_EQ(parse_keyring(text).value().size(), 1u);
}

const std::string kHeadWithRoles = "{\"pccl_keyring\":2}\n";

std::string line_with_role(const std::string& role) {
  std::string line = token_line("k3v9x2mq", kSomeSecret);
  return line.insert(line.find("\"runs\""), "\"role\":" + role + ",");
}

TEST(Keyring, Version2HasRoles) {
  auto read = parse_keyring(kHeadWithRoles + line_with_role("\"observer\""));
  ASSERT_TRUE(read.ok()) << read.status().message;
  EXPECT_EQ(read.value().at("k3v9x2mq").role, Role::kObserver);
  read = parse_keyring(kHeadWithRoles + line_with_role("\"peer\""));
  ASSERT_TRUE(read.ok()) << read.status().message;
  EXPECT_EQ(read.value().at("k3v9x2mq").role, Role::kPeer);
  read = parse_keyring(kKeyringHead + token_line("k3v9x2mq", kSomeSecret));
  ASSERT_TRUE(read.ok()) << read.status().message;
  EXPECT_EQ(read.value().at("k3v9x2mq").role, Role::kPeer) << "version 1";
}

TEST(Keyring, AnUnknownRoleIsRefused) {
  const auto refusal = [](const std::string& text) {
    const std::string said = keyring_refusal(text);
    return said.substr(0, said.find(". Put back"));
  };
  EXPECT_EQ(refusal(kHeadWithRoles + line_with_role("\"admin\"")),
            "is damaged in line 2: its role is \"admin\", and must be \"peer\" or \"observer\"");
  for (const std::string role :
       {"7", "null", "\"\"", "\"Peer\"", "\"a5a5a5a5\"", "\"abcdefghijklmnopq\"", "[\"peer\"]"}) {
    EXPECT_EQ(refusal(kHeadWithRoles + line_with_role(role)),
              "is damaged in line 2: its role must be \"peer\" or \"observer\"")
        << role;
  }
  EXPECT_EQ(refusal(kHeadWithRoles + token_line("k3v9x2mq", kSomeSecret)),
            "is damaged in line 2: its fields must be id, name, role, runs, created and secret");
  EXPECT_EQ(refusal(kKeyringHead + line_with_role("\"peer\"")),
            "is damaged in line 2: its fields must be id, name, runs, created and secret");
}

TEST(Keyring, ItsFirstLineSaysItsVersion) {
  for (const std::string head : {"", "\n", "{}", "[]", "7", "{\"pccl_keyring\":\"1\"}",
                                 "{\"pccl_keyring\":true}", "{\"pccl_keyring\":1"}) {
    EXPECT_TRUE(keyring_refusal(head).starts_with(
        "is damaged in line 1, which must be {\"pccl_keyring\":2}"))
        << head;
  }
  EXPECT_TRUE(
      keyring_refusal(token_line("k3v9x2mq", kSomeSecret)).starts_with("is damaged in line 1, "));
  EXPECT_EQ(keyring_refusal("{\"pccl_keyring\":3}\n"),
            "is of version 3, and this pccl reads versions 1 and 2: install the pccl that has "
            "written it");
}

// Each line that is left is right, so nothing else would tell that some are missing.
TEST(Keyring, ItsFirstLineMaySayTheNumberOfTokens) {
  const std::string two = token_line("first000", kSomeSecret) + token_line("second00", kSomeSecret);
  const auto with = [&two](const std::string& count) {
    return keyring_refusal("{\"pccl_keyring\":1,\"tokens\":" + count + "}\n" + two);
  };
  EXPECT_EQ(with("2"), "taken");
  const std::string advice =
      ": put back a whole copy, or correct the number if you have changed the file";
  EXPECT_EQ(with("3"), "has 2 tokens, and its first line says 3" + advice);
  EXPECT_EQ(with("1"), "has 2 tokens, and its first line says 1" + advice);
  for (const std::string count : {"-1", "2.0", "\"2\"", "null", "true"}) {
    EXPECT_EQ(with(count),
              "is damaged in line 1: its tokens must be the number of the lines that follow")
        << count;
  }
}

TEST(Keyring, ADamagedLineIsNamed) {
  const std::string line_3 = "is damaged in line 3: ";
  for (const std::string line : {"", "7", "null", "[]", "{\"id\":", "\xff", "{}}"})
    EXPECT_EQ(line_refusal(line), line_3 + "it is no JSON object") << line;
  const std::string fields = line_3 + "its fields must be id, name, runs, created and secret";
  EXPECT_EQ(line_refusal("{}"), fields);
  std::string more = token_line("k3v9x2mq", kSomeSecret);
  EXPECT_EQ(line_refusal(more.insert(1, "\"admin\":true,")), fields);
  std::string less = token_line("k3v9x2mq", kSomeSecret);
  EXPECT_EQ(line_refusal(less.replace(less.find("runs"), 4, "name")), fields);
  EXPECT_EQ(line_refusal(token_line("first000", kSomeSecret).substr(0, 140)),
            line_3 + "it is no JSON object");
  EXPECT_EQ(line_refusal(token_line("first000", kSomeSecret)),
            line_3 + "an earlier line has the same id");
}

// The line of a token, with another value of one field.
std::string changed_line(const std::string& field, const std::string& value) {
  std::string line = token_line("k3v9x2mq", kSomeSecret);
  const size_t at = line.find("\"" + field + "\":") + field.size() + 3;
  line.replace(at, line.find_first_of(",}", at) - at, value);
  line.pop_back();
  return line;
}

TEST(Keyring, EachFieldIsChecked) {
  const std::string line_3 = "is damaged in line 3: its ";
  for (const std::string value : {"7", "null", "\"\"", "\"k3v9x2m\"", "\"k3v9x2mq7a1p00000\"",
                                  "\"K3V9X2MQ\"", "\"k3v9 2mq\"", "\"k3v9x2m\xc3\xa4\""}) {
    EXPECT_EQ(line_refusal(changed_line("id", value)),
              line_3 + "id must have 8 to 16 lowercase letters and digits")
        << value;
  }
  EXPECT_EQ(line_refusal(changed_line("name", "\"" + std::string(64, 'n') + "\"")), "taken");
  for (const std::string& value : {std::string("7"), std::string("\"\""), std::string("\"a\\nb\""),
                                   "\"" + std::string(65, 'n') + "\""}) {
    EXPECT_EQ(line_refusal(changed_line("name", value)),
              line_3 + "name must have 1 to 64 printable bytes")
        << value;
  }
  EXPECT_EQ(line_refusal(changed_line("runs", "[\"" + std::string(128, 'n') + "\"]")), "taken");
  for (const std::string& value :
       {std::string("7"), std::string("\"night\""), std::string("[]"), std::string("[7]"),
        std::string("[\"\"]"), std::string("[\"\\u202e\"]"), std::string("{\"night\":1}"),
        "[\"" + std::string(129, 'n') + "\"]"}) {
    EXPECT_EQ(line_refusal(changed_line("runs", value)),
              line_3 + "runs must be null, or a list of names that have 1 to 128 printable bytes")
        << value;
  }
  for (const std::string value : {"null", "-1", "1.5", "\"1764000000\"", "true"}) {
    EXPECT_EQ(line_refusal(changed_line("created", value)),
              line_3 + "created must be a number of seconds")
        << value;
  }
  for (const std::string& value :
       {std::string("7"), std::string("\"\""), "\"" + kSomeSecret.substr(2) + "\"",
        "\"" + kSomeSecret + "00\"", "\"" + kSomeSecret.substr(2) + "0g\""}) {
    EXPECT_EQ(line_refusal(changed_line("secret", value)),
              line_3 + "secret must have 64 hexadecimal digits")
        << value;
  }
}

// A damaged file may have a secret where another field should be.
TEST(Keyring, NoRefusalRepeatsASecret) {
  const std::string quoted = "\"" + kSomeSecret + "\"";
  std::vector<std::string> lines = {kSomeSecret, quoted, "{" + quoted + ":1}",
                                    changed_line("secret", "\"" + kSomeSecret + " \""),
                                    changed_line("created", quoted) /* as a text */};
  for (const char* field : {"id", "name", "runs", "created"})
    lines.push_back(changed_line(field, quoted));
  lines.push_back(changed_line("runs", "[" + quoted.substr(0, 60)));
  for (const std::string& line : lines) {
    const std::string in_line_1 = keyring_refusal(line), in_line_3 = line_refusal(line);
    EXPECT_EQ(in_line_1.find("a5a5"), std::string::npos) << in_line_1;
    EXPECT_EQ(in_line_3.find("a5a5"), std::string::npos) << in_line_3;
  }
}

TEST(Keyring, SurvivesWhatIsMeantToHurtAParser) {
  EXPECT_NE(line_refusal(std::string(500000, '[')), "taken");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_NE(line_refusal(deep), "taken");
  EXPECT_NE(line_refusal(changed_line("runs", std::string(100000, '['))), "taken");
}

}  // namespace
}  // namespace pccl::master
