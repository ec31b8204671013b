// Fuzzes the requests of browsers: any bytes, and any bytes as the target and as headers of a
// request. The result must not depend on the pieces in which they come. A request that is taken has
// a route or a refusal, with a keyring and without.
#include <algorithm>
#include <string>

#include "csrc/base/secret.h"
#include "master/http/page_policy.h"
#include "master/http/request.h"
#include "master/http/response.h"
#include "master/http/router.h"
#include "tests/fuzz/fuzz.h"

namespace pccl::fuzz {
namespace {

using namespace master::http;
using Parsed = std::optional<RequestParser::Parsed>;

const master::Keyring& keyring() {
  static const master::Keyring* const made = [] {
    auto* const all = new master::Keyring;
    all->emplace("alice000",
                 master::Token{"alice", {"night"}, *Secret::from_hex(std::string(64, 'a'))});
    return all;
  }();
  return *made;
}

Parsed in_pieces(std::string_view bytes, Chance& chance) {
  RequestParser parser;
  while (!bytes.empty()) {
    const size_t piece = std::min<size_t>(bytes.size(), 1 + chance.below(40));
    if (auto parsed = parser.feed(bytes.substr(0, piece))) return parsed;
    bytes.remove_prefix(piece);
  }
  return std::nullopt;
}

bool is_same(const Request& a, const Request& b) {
  return a.path == b.path && a.query == b.query && a.host == b.host && a.origin == b.origin &&
         a.authorization == b.authorization && a.fetch_site == b.fetch_site &&
         a.fetch_mode == b.fetch_mode;
}

void answer(const Request& request) {
  require(!request.host.empty() && request.path.starts_with('/'), "a request has these");
  for (const master::Keyring* tokens : {static_cast<const master::Keyring*>(nullptr), &keyring()}) {
    const auto found = route(request, {"127.0.0.1", "pccl.example.org", tokens});
    if (const auto* refusal = std::get_if<Refusal>(&found)) {
      require(response(*refusal).starts_with("HTTP/1.1 4"), "a refusal is an answer");
    } else if (tokens != nullptr) {
      const Route& right = std::get<Route>(found);
      require(right.kind == Route::Kind::kHealth || right.holder.has_value(), "it has a password");
    }
  }
}

void parse(std::string_view bytes, Chance& chance) {
  RequestParser parser;
  const Parsed whole = parser.feed(bytes);
  const Parsed pieces = in_pieces(bytes, chance);
  require(whole.has_value() == pieces.has_value(), "pieces do not matter");
  if (!whole) return;
  require(whole->index() == pieces->index(), "nor for the kind of the result");
  if (const auto* refusal = std::get_if<Refusal>(&*whole)) {
    const auto& other = std::get<Refusal>(*pieces);
    require(refusal->status == other.status && refusal->why == other.why, "nor for the reason");
    return;
  }
  const auto& request = std::get<Request>(*whole);
  require(is_same(request, std::get<Request>(*pieces)), "nor for the request");
  answer(request);
}

}  // namespace
}  // namespace pccl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pccl;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Chance chance(std::span(data, size));
  fuzz::parse(text, chance);
  const std::string bytes(text);
  fuzz::parse("GET /" + bytes + " HTTP/1.1\r\nHost: localhost\r\n\r\n", chance);
  fuzz::parse("GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\n" + bytes + "\r\n\r\n", chance);
  fuzz::parse("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + bytes + "\r\n\r\n", chance);
  static_cast<void>(master::http::policy_of(text));
  return 0;
}
