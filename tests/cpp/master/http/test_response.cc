#include "master/http/response.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master::http {
namespace {

TEST(Response, HasAHeadAndABody) {
  EXPECT_EQ(response(200, kHtml, "<p>", "default-src 'none'"),
            "HTTP/1.1 200 OK\r\n"
            "Content-Type: text/html; charset=utf-8\r\n"
            "Content-Security-Policy: default-src 'none'\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            "Referrer-Policy: no-referrer\r\n"
            "Cross-Origin-Resource-Policy: same-origin\r\n"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n"
            "Content-Length: 3\r\n"
            "\r\n"
            "<p>");
}

TEST(Response, NamesTheReasonOfARefusal) {
  const std::string refused = response(Refusal{404, "there is no \"x\""});
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n"));
  EXPECT_TRUE(refused.ends_with("\r\n\r\n{\"error\":\"there is no \\\"x\\\"\"}\n"));
  EXPECT_TRUE(contains(refused, "Content-Security-Policy: default-src 'none'; frame-ancestors"));
}

TEST(Response, ARefusalHasTheHeaderThatItsStatusNeeds) {
  EXPECT_TRUE(contains(response(Refusal{401, "x"}), "401 Unauthorized\r\n"));
  EXPECT_TRUE(contains(response(Refusal{401, "x"}),
                       "\r\nWWW-Authenticate: Basic realm=\"pccl\", charset=\"UTF-8\"\r\n"));
  EXPECT_TRUE(contains(response(Refusal{405, "x"}), "\r\nAllow: GET\r\n"));
  EXPECT_TRUE(contains(response(Refusal{503, "x"}), "\r\nRetry-After: 1\r\n"));
}

TEST(Response, AStreamHasNoLengthAndEventsFollow) {
  const std::string head = begin_events();
  EXPECT_TRUE(contains(head, "\r\nContent-Type: text/event-stream\r\n"));
  EXPECT_FALSE(contains(head, "Content-Length"));
  EXPECT_TRUE(head.ends_with("\r\n\r\nretry: 1000\n\n"));
  EXPECT_EQ(begin_event("gone"), "event: gone\ndata: ");
}

// No origin but its own may read an answer.
TEST(Response, NamesNoOrigin) {
  for (const std::string& answer :
       {begin_events(), response(200, kJson, ""), response(Refusal{403, "x"})})
    EXPECT_FALSE(contains(answer, "Access-Control")) << answer;
}

}  // namespace
}  // namespace pccl::master::http
