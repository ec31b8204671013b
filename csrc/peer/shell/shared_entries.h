// SharedEntries is the memory of one sync_shared_state call: the application's tensors, staging
// buffers for the entries that this peer fetches, and copies of those that it sends from a device.
// It belongs to the calling thread, which may use its OpenMP team. The peer loop asks that
// thread to lend and to verify. It waits for devices, each time for `timeout` at most.
// Entries on a device: the device hashes them. If it cannot, the host hashes them piece by piece.
// Only an entry that somebody asks for is copied to the host. The memory of an entry is written by
// install() alone (P2). The pinned memory is that of PinnedPieces.
// Failure: an error names the entry, or the first and the last of several on one device.
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
  static Result<std::shared_ptr<SharedEntries>> make(std::vector<StateSpan> entries,
                                                     Duration timeout = kForever,
                                                     const Interrupted& interrupted = {});

  // Why a device could not hash; ok if all could. Such entries are offered with a hash of 0, which
  // must not be elected, and lend() fails.
  const Status& failure() const { return failure_; }
  // The offer to the master. The caller fills in revision and strategy.
  const protocol::Offer& offer() const { return offer_; }

  // The memory of these keys: the tensors themselves, or their copies from a device; if `receives`,
  // staging buffers. kSystem if there is no memory.
  Result<std::vector<std::span<std::byte>>> lend(const std::vector<uint32_t>& keys, bool receives);
  // Checks that the received entries have these hashes. kSharedState names the first key that does
  // not.
  Status verify(const std::vector<uint32_t>& keys, const std::vector<uint64_t>& hashes) const;
  // Copies the received entries into the tensors.
  Status install(const std::vector<uint32_t>& keys);
  // Lets go of all memory, so that no other thread releases it.
  void release();

  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  using Buffers = std::map<uint32_t, std::unique_ptr<std::byte[]>>;
  // Entries on one device.
  struct Group {
    memory::Device* device = nullptr;
    std::vector<uint32_t> keys;
    memory::DeviceEventPtr mark = nullptr;
    std::shared_ptr<memory::DeviceHashes> hashes = nullptr;
  };
  std::vector<Group> on_devices(const std::vector<uint32_t>& keys) const;
  std::vector<memory::DeviceBytesPtr> memory_of(const Group& group) const;
  Status error_of(const Group& group, size_t first, size_t last, const Status& why) const;
  Status error_of(const Group& group, const Status& why) const;
  void hash(const Interrupted& interrupted);
  Status hash_on_devices(std::vector<Group>& groups, const Interrupted& interrupted);
  Status start_hash(Group& group, const Interrupted& interrupted);
  Status finish_hash(Group& group);
  Status hash_copies(const Group& group);
  Status allocate(Buffers& buffers, uint32_t key, const char* what);
  Status copy_out(const std::vector<uint32_t>& keys);

  std::vector<StateSpan> entries_;  // in the order of the offer
  Duration timeout_ = kForever;
  Status failure_;
  protocol::Offer offer_;
  Buffers staging_;
  Buffers copies_;  // of entries on a device, to be sent
  uint64_t bytes_sent_ = 0, bytes_received_ = 0;
};

}  // namespace pccl::peer
