// SharedEntries is the memory of one sync_shared_state call: the application's tensors, the pieces
// that this peer has received, and copies of entries that it sends from a device. It belongs to the
// calling thread, which may use its OpenMP team. The peer loop asks that thread to lend and to
// check memory. The thread waits for devices, in each wait for at most `timeout`.
// Pieces are received into staging buffers, and install() copies them to the tensors. With
// `in_place`, a piece of an entry in host memory is received in the tensor itself, because the old
// content of the tensor is worthless.
// Entries on a device: the device hashes them. If it cannot, the host hashes them piece by piece.
// An entry is copied to the host only if another member requests it. PinnedPieces provides the
// pinned memory. Only install() writes to the memory of an entry (P2), except with `in_place`.
// Failure: an error names the entry, or the first and the last of several on one device.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/peer/shell/peer.h"
#include "csrc/peer/shell/state/bound_entries.h"
#include "csrc/peer/state/piece_layout.h"

namespace pccl::peer {

class SharedEntries {
 public:
  struct Options {
    Duration timeout = kForever;
    uint64_t piece_bytes = protocol::kStateUnitBytes;
    bool in_place = false;
  };
  // Sorts and hashes the entries. kInvalidArgument: see StateSpans.
  static Result<std::shared_ptr<SharedEntries>> make(std::vector<StateSpan> entries,
                                                     const Options& options,
                                                     const Interrupted& interrupted = {});
  // The same for entries that are checked and sorted already.
  static std::shared_ptr<SharedEntries> make(std::shared_ptr<StateSpans> spans,
                                             const Options& options,
                                             const Interrupted& interrupted = {});

  // The reason why a device could not hash its entries; ok if all devices could. The offer has a
  // hash of 0 for such entries, which must not be elected, and lend() fails.
  const Status& failure() const { return failure_; }
  // The offer to the master. The caller fills in revision and strategy.
  const protocol::Offer& offer() const { return offer_; }
  const std::shared_ptr<StateSpans::List>& list() const { return list_; }  // the offered entries

  // A plan begins. From here on, the number of an entry is its number in the plan. The received
  // pieces are dropped, unless the plan keeps the pieces of the plan before.
  void begin(const BeginPieces& plan);
  // The memory of one end of the transfer `op`. kSystem if there is none. REQUIRES: a plan.
  Result<std::span<std::byte>> lend(OpKey op, const PieceOp& piece);
  // Releases the memory of a transfer that was sent.
  void take_back(OpKey op);
  // Checks the bytes that have arrived with the transfer `op`. If a hash differs from the elected
  // one, the error is kSharedState and names the first such key.
  struct Checked {
    Status status;
    std::vector<uint64_t> have = {};  // kHave: the pieces of the sender
  };
  Checked check(OpKey op, uint32_t what);
  // Copies the received pieces of these entries into the tensors. REQUIRES: all were checked.
  Status install(const std::vector<uint32_t>& keys);
  // The entries that this peer did not have. REQUIRES: installed.
  std::vector<AddedEntry> take_added() { return entries_.take_added(); }
  // Releases all memory here, so that no other thread has to do it.
  void release();

  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  using Buffer = std::unique_ptr<std::byte[]>;
  using Buffers = std::map<uint32_t, Buffer>;
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
  void hash_on_host(const StateSpans::ByKind& entries);
  void hash_parts(uint32_t key);
  Status hash_on_devices(std::vector<Group>& groups, const Interrupted& interrupted);
  Status start_hash(Group& group, const Interrupted& interrupted);
  Status finish_hash(Group& group);
  Status hash_copies(const Group& group);
  Status allocate(Buffer& buffer, size_t bytes, const char* what) const;
  Status copy_out(const std::vector<uint32_t>& keys);

  const StateSpan& entry(uint32_t key) const { return entries_[key]; }
  bool is_on_host(uint32_t key) const { return entry(key).device == nullptr; }
  std::span<std::byte> in_tensor(uint32_t piece) const;
  std::span<std::byte> home_of(const PieceLayout::Segment& segment) const;
  Result<std::span<std::byte>> landing(OpKey op, uint32_t what);
  Result<std::span<std::byte>> source(OpKey op, const PieceOp& piece);
  Result<std::span<std::byte>> gather(OpKey op, uint32_t piece);
  Status make_manifest();
  Status check_piece(uint32_t piece);
  Status check_manifest(const std::byte* received);
  Status wrong(uint32_t key) const;
  void read_staging(uint32_t key, uint64_t offset, std::span<std::byte> to) const;

  std::shared_ptr<StateSpans> spans_;
  BoundEntries entries_;
  std::shared_ptr<StateSpans::List> list_;
  Options options_;
  Status failure_;
  Status refusal_;  // why the plan cannot be carried out here
  protocol::Offer offer_;
  std::vector<uint64_t> hashes_;  // of the offered entries
  // Hash sums of the parts of large entries on the host, by key.
  std::map<uint32_t, std::vector<uint64_t>> sums_;
  protocol::EntryList elected_;
  PieceLayout layout_;
  std::vector<uint64_t> manifest_;  // hash sums of all parts in the plan; empty: not known yet
  Buffers staging_;                 // buffers of received pieces, by piece
  Buffers copies_;                  // by key: host copies of entries on a device, to be sent
  std::map<OpKey, Buffer> lent_;    // buffers of single transfers
  uint64_t bytes_sent_ = 0, bytes_received_ = 0;
};

}  // namespace pccl::peer
