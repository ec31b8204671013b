#include "master/http/page_policy.h"

#include <gtest/gtest.h>

#include "master/http/page.h"

namespace pccl::master::http {
namespace {

TEST(PagePolicy, NamesTheHashOfEachInlineText) {
  EXPECT_EQ(policy_of("<style>abc</style><p><script>abc</script><script type=x></script>"),
            "default-src 'none'; "
            "script-src 'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=' "
            "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='; "
            "style-src 'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'");
}

TEST(PagePolicy, APageWithoutInlineTextsMayRunNothing) {
  for (const char* page : {"", "<p>", "<script", "<script>abc", "<style><script>"}) {
    EXPECT_TRUE(policy_of(page).starts_with(
        "default-src 'none'; script-src 'none'; style-src 'none'; connect-src"))
        << page;
  }
}

// A browser would refuse such a part of the page.
TEST(PagePolicy, ThePageHasOnlyThePartsThatItAllows) {
  const std::string_view page = http::page();
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_LE(page.size(), 60u << 10);
  for (const char* part : {" style=", " onclick=", " onload=", "javascript:", " src=", "@import"})
    EXPECT_EQ(page.find(part), std::string_view::npos) << part;
}

}  // namespace
}  // namespace pccl::master::http
