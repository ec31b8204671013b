#include "master/http/page_policy.h"

#include "csrc/net/digest.h"

namespace pccl::master::http {
namespace {

// " 'sha256-...'" for the text of each `name` element; " 'none'" if there is none.
std::string hashes_of(std::string_view page, const std::string& name) {
  const std::string begin = "<" + name, end = "</" + name + ">";
  std::string hashes;
  for (size_t at = page.find(begin); at != std::string_view::npos; at = page.find(begin, at)) {
    const size_t text = page.find('>', at);
    const size_t after = text == std::string_view::npos ? text : page.find(end, text);
    if (after == std::string_view::npos) break;
    hashes += " 'sha256-" + net::sha256_base64(page.substr(text + 1, after - text - 1)) + "'";
    at = after;
  }
  return hashes.empty() ? " 'none'" : hashes;
}

}  // namespace

std::string policy_of(std::string_view page) {
  return "default-src 'none'; script-src" + hashes_of(page, "script") + "; style-src" +
         hashes_of(page, "style") +
         "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
         "frame-ancestors 'none'";
}

}  // namespace pccl::master::http
