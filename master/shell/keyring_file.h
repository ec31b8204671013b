// KeyringFile: the keyring of a running master. It is read at the start, again when `pccl token
// revoke` asks for that, and within kLook after any other change. It belongs to the loop of the
// master. A thread of its own reads the file, so that the loop never waits for a disk.
// Failure: a file that cannot be read, that others may read, or that is damaged is refused with
// advice. The master then keeps the tokens that it has.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/result.h"
#include "csrc/net/loop.h"
#include "master/runs/keyring.h"

namespace pccl::master {

// Fails with kSystem, the path and advice if the file does not exist, is no file, belongs to
// another user, is open to others, is too large, or is damaged. Any thread.
Result<Keyring> read_keyring(const std::string& path);

class KeyringFile {
 public:
  static constexpr Duration kLook = std::chrono::seconds(1);  // interval of looks for a change
  // Called on the loop when tokens have left the keyring. Removes the peers that came with them,
  // and returns their number.
  using OnRevoked = std::function<size_t(const std::vector<TokenId>& tokens)>;

  // Reads the file at once. Fails like read_keyring().
  static Result<std::unique_ptr<KeyringFile>> open(net::Loop& loop, const std::string& path,
                                                   OnRevoked on_revoked);
  ~KeyringFile();  // waits for a read that is under way; no answer is called any more

  const std::string& path() const;
  size_t count_at_opening() const;  // of tokens; any thread
  const Keyring& keyring() const;

  struct Revoked {
    size_t tokens = 0;  // that have left the keyring
    size_t peers = 0;   // that were removed for it
  };
  // Reads the file again, replaces the keyring, and calls `then` on the loop.
  void read_again(std::function<void(Result<Revoked>)> then);

 private:
  struct Impl;
  KeyringFile();
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::master
