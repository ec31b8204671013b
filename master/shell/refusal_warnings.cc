#include "master/shell/refusal_warnings.h"

#include "csrc/base/text.h"
#include "csrc/net/address.h"

namespace pccl::master {
namespace {

const char* reason_text(net::Tls::Refusal refusal) {
  switch (refusal) {
    case net::Tls::Refusal::kUnknownIdentity:
      return " because of its token; the last one showed a token that is not in the keyring";
    case net::Tls::Refusal::kWrongKey:
      return " because of its token; the last one did not know the secret of its token";
    case net::Tls::Refusal::kPlainText:
      return " without a token: a peer that has no PCCL_SECRET_FILE, or another program";
    case net::Tls::Refusal::kOther: break;
  }
  return nullptr;
}

}  // namespace

std::optional<std::string> RefusalWarnings::refused(net::Tls::Refusal refusal,
                                                    const std::string& host, const std::string& why,
                                                    Instant now) {
  const char* reason = reason_text(refusal);
  if (reason == nullptr) return std::nullopt;
  const bool plain = refusal == net::Tls::Refusal::kPlainText;
  const std::string network = net::network_of(host);
  const uint64_t count = (plain ? plain_texts_ : tokens_).count(network, now);
  if (count == 0) return std::nullopt;
  return "refused " + count_text(count, "connection") + " from " + network + reason + " (" + why +
         ")";
}

}  // namespace pccl::master
