#include "master/http/place.h"

#include <gtest/gtest.h>

namespace pccl::master::http {
namespace {

Place place(const std::string& text) {
  const auto parsed = parse_place(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return parsed.ok() ? parsed.value() : Place{};
}

TEST(Place, IsAnAddressOrASocket) {
  EXPECT_EQ(place("8080"), (Place{.at = {"127.0.0.1", 8080}}));
  EXPECT_EQ(place("0"), (Place{.at = {"127.0.0.1", 0}}));
  EXPECT_EQ(place("localhost:65535"), (Place{.at = {"localhost", 65535}}));
  EXPECT_EQ(place("[::1]:8080"), (Place{.at = {"::1", 8080}}));
  EXPECT_EQ(place("unix:/run/pccl.sock"), (Place{.socket = "/run/pccl.sock"}));
  EXPECT_EQ(place("unix:a:80"), (Place{.socket = "a:80"}));
}

TEST(Place, AnotherTextIsRefused) {
  for (const std::string text :
       {"", ":", ":80", "localhost:", "localhost:http", "65536", "-1", "80 ", "::1:80", "[]:80",
        "unix:", "unix:/run/", "http://localhost:80"}) {
    const auto parsed = parse_place(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code, Code::kInvalidArgument);
    EXPECT_EQ(parsed.status().message, "--http is \"" + text +
                                           "\", and PORT, ADDRESS:PORT or unix:PATH is needed, "
                                           "for example 8080");
  }
}

TEST(Place, AProxyHasAHost) {
  for (const std::string text : {"pccl.example.org", "10.0.0.7", "A-b.C"}) {
    const auto parsed = parse_proxy(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed.value(), text == "A-b.C" ? "a-b.c" : text);
  }
  for (const std::string text : {"", "https://pccl.example.org", "pccl.example.org:443", "a b"}) {
    const auto parsed = parse_proxy(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().message,
              "--http-behind-proxy is \"" + text +
                  "\", and the host is needed that browsers ask the proxy for, for example "
                  "pccl.example.org");
  }
}

}  // namespace
}  // namespace pccl::master::http
