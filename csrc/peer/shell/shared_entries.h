// SharedEntries is the memory of one sync_shared_state call: the application's tensors, and staging
// buffers for the entries that this peer fetches. make(), verify() and install() run on the calling
// thread, which may use its OpenMP team; lend() runs on the control loop. The two threads never use
// it at the same time: the loop lends before it requests verification, and the caller installs
// after the end of the call.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/peer/shell/peer.h"

namespace pccl::peer {

class SharedEntries {
 public:
  // Sorts and hashes the entries. kInvalidArgument for entries that cannot be offered: a duplicate
  // key, a shape that does not match the number of bytes, more than the limits allow.
  static Result<std::shared_ptr<SharedEntries>> make(std::vector<StateSpan> entries);

  // The offer to the master. The caller fills in revision and strategy.
  const protocol::Offer& offer() const { return offer_; }

  // The memory of these keys: the tensors themselves or, if `receives`, staging buffers. kSystem if
  // there is no memory.
  Result<std::vector<std::span<std::byte>>> lend(const std::vector<uint32_t>& keys, bool receives);
  // Checks that the received entries have these hashes. kSharedState names the first key that does
  // not.
  Status verify(const std::vector<uint32_t>& keys, const std::vector<uint64_t>& hashes) const;
  // Copies the received entries into the tensors.
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
