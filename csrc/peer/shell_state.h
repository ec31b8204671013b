// SharedEntries: the memory of one sync_shared_state call: the application's tensors, and staging
// for what this peer fetches. make(), verify() and install() run on the calling thread, which may
// use its OpenMP team; lend() runs on the control loop. The two never run at once: the loop lends
// before it asks for verification, and the caller installs after the call's end.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "csrc/peer/shell.h"

namespace pccl::peer {

class SharedEntries {
 public:
  // Sorts and hashes them. kInvalidArgument for entries that cannot be offered: a key that is there
  // twice, a shape that is not the size of its bytes, more than the limits allow.
  static Result<std::shared_ptr<SharedEntries>> make(std::vector<StateSpan> entries);

  // What the master is offered: revision and strategy are the caller's to fill in.
  const protocol::Offer& offer() const { return offer_; }

  // The memory of these keys: the tensors themselves, or staging. kSystem when there is no memory.
  Result<std::vector<std::span<std::byte>>> lend(const std::vector<uint32_t>& keys, bool receives);
  // Whether what was received has these hashes. kSharedState names the first key that does not.
  Status verify(const std::vector<uint32_t>& keys, const std::vector<uint64_t>& hashes) const;
  // Copies what was received into the tensors.
  void install(const std::vector<uint32_t>& keys);

  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  std::vector<StateSpan> entries_;  // in the order of the offer
  protocol::Offer offer_;
  std::map<uint32_t, std::unique_ptr<std::byte[]>> staging_;
  uint64_t bytes_sent_ = 0, bytes_received_ = 0;
};

}  // namespace pccl::peer
