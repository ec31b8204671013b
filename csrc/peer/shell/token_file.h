// token_file: reads a peer's token from the file of PCCL_SECRET_FILE. pccl_backend reads the file
// once at the start and explains all that may be wrong with it. Peer::join() reads the file once
// more. From then on TokenWatch looks at the file, so that the token can be replaced during the
// run.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "csrc/base/file_stamp.h"
#include "csrc/base/result.h"
#include "csrc/base/token.h"
#include "csrc/net/loop.h"

namespace pccl::peer {

// The place of a peer's token: a file, which may change, or memory. If both are empty, the peer has
// no token.
struct TokenSource {
  std::string path;
  std::shared_ptr<const Token> token;
  bool any() const { return !path.empty() || token != nullptr; }
};

// kSystem if the file cannot be read, if other users may read or write it, or if it has no token.
// Does not block on a FIFO.
Result<Token> read_token(const std::string& path);

// TokenWatch looks at the file of a token again and again. It has a thread of its own, since a disk
// may be slow. The file is read only after a change. A file that is missing, unreadable or wrong
// changes nothing. It is reported once, and again only after the file was good.
class TokenWatch {
 public:
  static constexpr Duration kLook = std::chrono::seconds(1);  // interval of the looks

  // The thread of the watch calls both functions.
  struct Callbacks {
    std::function<void(std::shared_ptr<const Token>)> on_token;  // the file has another token now
    std::function<void(const std::string&)> on_warning;
  };
  // `token`: the present token.
  TokenWatch(std::string path, std::shared_ptr<const Token> token, Callbacks callbacks);
  ~TokenWatch();  // after this, no callback is called

  const Status& status() const { return loop_.status(); }  // kSystem: there is no thread

 private:
  void look();

  const std::string path_;
  const Callbacks callbacks_;
  // On the loop only.
  std::shared_ptr<const Token> token_;  // the last good token in the file
  std::optional<FileStamp> stamp_;      // of the file when it was read last
  bool warned_ = false;                 // the file was bad when it was read last
  std::unique_ptr<net::Timer> timer_;
  net::Loop loop_{"pccl-token"};
};

}  // namespace pccl::peer
