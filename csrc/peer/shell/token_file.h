// token_file: reads the file of PCCL_SECRET_FILE, in which a peer has its token. pccl_backend reads
// it once at the start and explains all that may be wrong with it. A peer reads it again at each
// connection to the master, so that a token can be replaced while the run goes on.
#pragma once

#include <memory>
#include <string>

#include "csrc/base/result.h"
#include "csrc/base/token.h"

namespace pccl::peer {

// Where a peer has its token: in a file, or in memory. Neither: it has none.
struct TokenSource {
  std::string path;
  std::shared_ptr<const Token> token;
  bool any() const { return !path.empty() || token != nullptr; }
};

// kSystem if the file cannot be read, is open to others, or holds no token. Does not block on a
// FIFO.
Result<Token> read_token(const std::string& path);

}  // namespace pccl::peer
