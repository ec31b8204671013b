// RefusalWarnings: the log lines about connections that were refused because of their token. It has
// no socket and no clock. Strangers decide how often they try, so the log has few lines about them
// (net/network_warnings.h). Plain text is counted apart: otherwise a program that scans ports could
// hide refused tokens.
#pragma once

#include <optional>
#include <string>

#include "csrc/net/network_warnings.h"
#include "csrc/net/tls.h"

namespace pccl::master {

class RefusalWarnings {
 public:
  // A connection from `host` was refused. `why`: the words of the TLS layer. Returns the line, if
  // one is due now.
  std::optional<std::string> refused(net::Tls::Refusal refusal, const std::string& host,
                                     const std::string& why, Instant now);

 private:
  net::NetworkWarnings tokens_, plain_texts_;
};

}  // namespace pccl::master
