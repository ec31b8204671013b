#include "master/http/request.h"

#include <gtest/gtest.h>

namespace pccl::master::http {
namespace {

const std::string kHost = "Host: localhost:8080\r\n";

using Parsed = std::optional<RequestParser::Parsed>;

Parsed parse(const std::string& bytes) { return RequestParser().feed(bytes); }

// The request of one that is right.
Request request_of(const std::string& bytes) {
  const Parsed parsed = parse(bytes);
  const auto* request = parsed ? std::get_if<Request>(&*parsed) : nullptr;
  EXPECT_NE(request, nullptr) << bytes;
  return request == nullptr ? Request{} : *request;
}

// "400: why", "taken", or "more".
std::string outcome(const Parsed& parsed) {
  if (!parsed) return "more";
  const auto* refusal = std::get_if<Refusal>(&*parsed);
  return refusal == nullptr ? "taken" : std::to_string(refusal->status) + ": " + refusal->why;
}
std::string outcome_of(const std::string& bytes) { return outcome(parse(bytes)); }
std::string target(const std::string& text) {
  return outcome_of("GET " + text + " HTTP/1.1\r\n" + kHost + "\r\n");
}
std::string headers(const std::string& lines) {
  return outcome_of("GET / HTTP/1.1\r\n" + kHost + lines + "\r\n");
}

TEST(Request, HasTheKnownPartsOfItsHead) {
  const Request request = request_of(
      "GET /run/a%20b?run=c+d%26e&static=1 HTTP/1.1\r\nhOsT:\tlocalhost:8080 \r\n"
      "Origin: http://localhost:8080\r\nAuthorization: Basic eDp5\r\nSec-Fetch-Site: "
      "same-origin\r\n"
      "Sec-Fetch-Mode: cors\r\nCookie: \xc3\xa4\r\nX:\r\n\r\nand more");
  EXPECT_EQ(request.path, "/run/a b");
  EXPECT_EQ(request.query, (std::map<std::string, std::string>{{"run", "c d&e"}, {"static", "1"}}));
  EXPECT_EQ(request.host, "localhost:8080");
  EXPECT_EQ(request.origin, "http://localhost:8080");
  EXPECT_EQ(request.authorization, "Basic eDp5");
  EXPECT_EQ(request.fetch_site, "same-origin");
  EXPECT_EQ(request.fetch_mode, "cors");
}

TEST(Request, APlusIsASpaceInTheQueryOnly) {
  const Request request = request_of("GET /a+b?c+d=e+f HTTP/1.0\r\n" + kHost + "\r\n");
  EXPECT_EQ(request.path, "/a+b");
  EXPECT_EQ(request.query.at("c d"), "e f");
}

TEST(Request, IsTheSameInAnyPieces) {
  const std::string whole = "GET /x?run=%41 HTTP/1.1\r\n" + kHost + "A: b\r\n\r\n";
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    RequestParser parser;
    EXPECT_EQ(outcome(parser.feed(whole.substr(0, cut))), "more") << cut;
    const Parsed parsed = parser.feed(whole.substr(cut));
    ASSERT_EQ(outcome(parsed), "taken") << cut;
    EXPECT_EQ(std::get<Request>(*parsed).query.at("run"), "A");
  }
}

TEST(Request, OnlyGetIsServed) {
  for (const std::string method : {"POST", "HEAD", "PUT", "DELETE", "OPTIONS", "get"}) {
    EXPECT_EQ(outcome_of(method + " / HTTP/1.1\r\n" + kHost + "Content-Length: 5\r\n\r\n"),
              "405: only GET is served: nothing can be changed here");
  }
  EXPECT_EQ(outcome_of("GET / HTTP/2.0\r\n" + kHost + "\r\n"),
            "505: only HTTP/1.0 and HTTP/1.1 are served");
}

TEST(Request, ADamagedFirstLineIsRefused) {
  const std::string wrong = "400: the first line must be GET PATH HTTP/1.1";
  for (const std::string line : {"", "GET", "GET /", "GET  / HTTP/1.1", "GET / ", " GET / HTTP/1.1",
                                 "GET / FTP/1.1", "\x16\x03\x01", "G(T / HTTP/1.1"}) {
    EXPECT_EQ(outcome_of(line + "\r\n" + kHost + "\r\n"), wrong) << line;
  }
  EXPECT_EQ(outcome_of("GET / HTTP/1.1 \r\n" + kHost + "\r\n").substr(0, 4), "505:");
  EXPECT_EQ(outcome_of("GET / HTTP/1.1\n" + kHost + "\r\n").substr(0, 4), "505:");
}

TEST(Request, ADamagedTargetIsRefused) {
  const std::string no_path = "400: the target must be a path, for example /run/NAME";
  for (const std::string text : {"http://localhost/", "*", "localhost:80", "/a#b", "/\xc3\xa4"})
    EXPECT_EQ(target(text), no_path) << text;
  for (const std::string text : {"/%", "/%4", "/%4g", "/%%41", "/%-1"})
    EXPECT_EQ(target(text), "400: the percent-encoding of the path is damaged") << text;
  for (const std::string text : {"/?%", "/?a=%4", "/?a=b&%g1"})
    EXPECT_EQ(target(text), "400: the percent-encoding of the query is damaged") << text;
  EXPECT_EQ(target("/?run=a&run=b"), "400: a name is twice in the query");
  EXPECT_EQ(target("/?&&"), "400: a name is twice in the query");
}

TEST(Request, ADamagedHeaderIsRefused) {
  EXPECT_EQ(headers("A\r\n"), "400: a header has no colon");
  for (const std::string line : {": b", "A : b", " folded: b", "\tfolded: b", "A\x01: b"})
    EXPECT_EQ(headers(line + "\r\n"),
              "400: the name of a header has a character that is not allowed")
        << line;
  const std::string control = "400: a header has a control character";
  EXPECT_EQ(headers("A: b\nC: d\r\n"), control);
  EXPECT_EQ(headers("A: b\rC: d\r\n"), control);
  EXPECT_EQ(headers(std::string("A: b\0c\r\n", 8)), control);
  EXPECT_EQ(headers("A: \x7f\r\n"), control);
  EXPECT_EQ(headers("host: evil\r\n"), "400: the header host is there twice");
  EXPECT_EQ(outcome_of("GET / HTTP/1.1\r\n\r\n"), "400: the header Host is missing");
  EXPECT_EQ(outcome_of("GET / HTTP/1.0\r\nHost: \r\n\r\n"), "400: the header Host is missing");
}

TEST(Request, ABodyIsRefused) {
  EXPECT_EQ(headers("Content-Length: 0\r\n"), "taken");
  for (const std::string line :
       {"Content-Length: 5", "content-length: 00", "Content-Length: -0",
        "Transfer-Encoding: chunked", "Content-Length: 0\r\nContent-Length: 5"})
    EXPECT_EQ(headers(line + "\r\n"), "400: a GET has no body here") << line;
}

TEST(Request, HasALimitForItsFirstLine) {
  const std::string path = "/" + std::string(kLineBytesMax - 14, 'x');
  const std::string longest = "GET " + path + " HTTP/1.1";
  ASSERT_EQ(longest.size(), kLineBytesMax);
  EXPECT_EQ(request_of(longest + "\r\n" + kHost + "\r\n").path, path);
  const std::string refused = "414: the first line is longer than 2048 bytes";
  EXPECT_EQ(target(path + "x"), refused);
  EXPECT_EQ(outcome_of(std::string(kLineBytesMax, 'x')), "more");
  EXPECT_EQ(outcome_of(std::string(kLineBytesMax, 'x') + "\r"), "more");
  EXPECT_EQ(outcome_of(std::string(kLineBytesMax + 1, 'x')), refused);
}

TEST(Request, HasALimitForItsHeaders) {
  const std::string begin = "GET / HTTP/1.1\r\n" + kHost;
  const std::string filler(kHeaderBytesMax - kHost.size() - 5, 'x');
  const std::string longest = begin + "A: " + filler + "\r\n\r\n";
  EXPECT_EQ(outcome_of(longest), "taken");
  const std::string refused = "431: the headers have more than 8192 bytes";
  EXPECT_EQ(outcome_of(begin + "A: x" + filler + "\r\n\r\n"), refused);
  RequestParser one_by_one;
  for (size_t i = 0; i + 1 < longest.size(); ++i)
    ASSERT_EQ(outcome(one_by_one.feed(longest.substr(i, 1))), "more") << i;
  EXPECT_EQ(outcome(one_by_one.feed("\n")), "taken");
  EXPECT_EQ(outcome_of(begin + std::string(4u << 20, 'x')), refused);
  std::string many = kHost;
  for (size_t i = 1; i < kHeadersMax; ++i) many += "A: b\r\n";
  EXPECT_EQ(outcome_of("GET / HTTP/1.1\r\n" + many + "\r\n"), "taken");
  EXPECT_EQ(outcome_of("GET / HTTP/1.1\r\n" + many + "A: b\r\n\r\n"),
            "431: there are more than 64 headers");
}

}  // namespace
}  // namespace pccl::master::http
