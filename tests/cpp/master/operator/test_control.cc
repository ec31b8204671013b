#include "master/operator/control.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace pccl::master {
namespace {

std::string refusal(const std::string& line) {
  auto request = parse_request(line);
  return request.ok() ? "taken" : request.status().message;
}

TEST(Control, ReadsWhatThereIsToAsk) {
  EXPECT_EQ(parse_request(R"({"command":"runs"})").value(), (ControlRequest{Command::kRuns}));
  EXPECT_EQ(parse_request(R"( {"later":[1], "run":"näme", "command":"forget"} )").value(),
            (ControlRequest{Command::kForget, "näme"}));
  EXPECT_EQ(parse_request(R"({"command":"revoke","tokens":["k3v9x2mq","later"]})").value(),
            (ControlRequest{.command = Command::kRevoke, .tokens = {"k3v9x2mq", "later"}}));
  EXPECT_EQ(parse_request(R"({"command":"revoke","tokens":[]})").value(),
            (ControlRequest{.command = Command::kRevoke}));
  EXPECT_EQ(parse_request(R"({"command":"status","run":"r","history":true})").value(),
            (ControlRequest{.command = Command::kStatus, .run = "r", .history = true}));
  EXPECT_EQ(parse_request(R"({"command":"status","history":false})").value(),
            (ControlRequest{.command = Command::kStatus}));
}

TEST(Control, TheFlagForTheHistoryIsABoolean) {
  EXPECT_EQ(refusal(R"({"command":"status","history":"yes"})"),
            "the \"history\" of the command \"status\" must be true or false");
}

TEST(Control, SaysWhatIsWrongWithARequest) {
  const std::string no_object = "the request is no JSON object on one line";
  for (const std::string line :
       {"", "runs", "7", "null", "[]", "\"runs\"", R"({"command":"runs"}})", R"({"command":"runs")",
        R"({"command":1e999})", "{\"command\":\"\xff\"}", R"({"command":"\ud800"})"}) {
    EXPECT_EQ(refusal(line), no_object) << line;
  }
  EXPECT_EQ(refusal("{}"), "the request has no \"command\" that is a text");
  EXPECT_EQ(refusal(R"({"command":["runs"]})"), "the request has no \"command\" that is a text");
  EXPECT_EQ(refusal(R"({"command":"stop\u202e\n"})"),
            "this master does not know the command \"stop\\u202e\\n\": is it of another version?");
  const std::string needs = "the command \"forget\" needs a \"run\", which is the name of one";
  EXPECT_EQ(refusal(R"({"command":"forget"})"), needs);
  EXPECT_EQ(refusal(R"({"command":"forget","run":7})"), needs);
  for (const std::string line :
       {R"({"command":"revoke"})", R"({"command":"revoke","tokens":"k3v9x2mq"})",
        R"({"command":"revoke","tokens":["k3v9x2mq",7]})",
        R"({"command":"revoke","tokens":[7,"k3v9x2mq"]})"}) {
    EXPECT_EQ(refusal(line),
              "the command \"revoke\" needs \"tokens\", which is a list of their ids")
        << line;
  }
}

TEST(Control, SurvivesWhatIsMeantToHurtAParser) {
  EXPECT_NE(refusal(std::string(60000, '[')), "taken");
  EXPECT_NE(refusal(std::string(30000, '[') + std::string(30000, ']')), "taken");
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += "{\"a\":";
  EXPECT_NE(refusal(deep + "1" + std::string(10000, '}')), "taken");
  const std::string unknown = refusal("{\"command\":\"" + std::string(60000, 'x') + "\"}");
  EXPECT_LT(unknown.size(), 5000u) << "it is not said back at length";
}

TEST(Control, AnswersTakeOneLine) {
  EXPECT_EQ(answer_line(error_answer("two\nlines \"quoted\"")),
            "{\"error\":\"two\\nlines \\\"quoted\\\"\"}\n");
  EXPECT_EQ(answer_line(error_answer("no UTF-8: \xff")),
            "{\"error\":\"no UTF-8: \xef\xbf\xbd\"}\n");
  EXPECT_EQ(answer_line(revoked_answer(2, 3)), "{\"revoked\":{\"peers\":3,\"tokens\":2}}\n");
}

}  // namespace
}  // namespace pccl::master
