// HostedMaster: a master inside this process. All hosted runs and all reconfigurable groups of the
// process share one, if it listens where they want it and admits the same peers. It ends with the
// last of them. Any thread may call the methods.
// Failure: get() raises OSError if the master cannot listen there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "csrc/base/mutex.h"

namespace pccl::master {
class Shell;
}

namespace pccl::torch_layer {

class HostedMaster {
 public:
  struct Options {
    std::string host;   // where it listens; empty: on every address
    std::string token;  // the text of the token that all peers have; empty: they need none
    // `token` was made for the first run; a later one is served by the master of an older token.
    bool drawn = false;
    bool handles = false;  // peers have the keys of their handles, and no token
  };
  // The master of this process for these options. It is started if there is none.
  static std::shared_ptr<HostedMaster> get(const Options& options);

  ~HostedMaster();
  HostedMaster(const HostedMaster&) = delete;
  HostedMaster& operator=(const HostedMaster&) = delete;

  master::Shell& shell() { return *shell_; }
  const std::string& token() const { return token_; }
  // The name of a new run: a number is added if there was a run of this name.
  std::string fresh_name(const std::string& name);

 private:
  HostedMaster(std::unique_ptr<master::Shell> shell, std::string token);

  const std::unique_ptr<master::Shell> shell_;
  const std::string token_;
  Mutex mutex_;
  std::map<std::string, int> names_ PCCL_GUARDED_BY(mutex_);  // number of runs that had this name
};

}  // namespace pccl::torch_layer
