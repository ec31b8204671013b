// OpInfo: the description of an operation, which its members compare. It is equal for all of them,
// apart from parts of different sizes, which must fit together. Plain values: any thread may use
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/ids.h"
#include "csrc/base/wire_format.h"

namespace pccl::protocol {

enum class OpKind : uint8_t {
  kAllReduce = 0,
  kBroadcast = 1,
  kAllGather = 2,
  kBarrier = 3,
  kSend = 4,
  kRecv = 5,
  kReduce = 6,
  kReduceScatter = 7,
  kGather = 8,
  kScatter = 9,
  kAllToAll = 10
};

// The properties of an operation that must be the same for all members. For kSend and kRecv, `root`
// is the sender, and both sides describe a kSend.
struct OpInfo {
  OpKind kind = OpKind::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  // Elements of one rank's tensor. kReduceScatter, kGather, kScatter, kAllToAll: of each part of
  // it.
  uint64_t count = 0;
  PeerId root{};            // of kBroadcast, kReduce, kGather, kScatter; kSend: the sender
  PeerId receiver{};        // kSend only
  uint32_t world_size = 0;  // as the application saw it when it called
  std::string tag;
  bool keep = false;   // kAllReduce, sum or average: elements finished at a loss keep their result
  uint64_t start = 0;  // elements from the start that have their result from earlier epochs
  // kAllGather and kAllToAll with parts of different sizes: elements of the part for each rank and
  // of the part from each rank. `count` is 0 then. Empty: all parts have `count` elements.
  std::vector<uint64_t> sends{}, receives{};
  WireFormat format{};  // kAllReduce, sum or average: how its tensors travel if they are not small
  bool operator==(const OpInfo&) const = default;
};

// The elements that the member with this description sends to a rank, and receives from it.
// REQUIRES: kAllGather or kAllToAll, and a description that has a part for this rank.
uint64_t sends_to(const OpInfo& info, uint32_t rank);
uint64_t receives_from(const OpInfo& info, uint32_t rank);
// Whether nothing differs but the sizes of uneven parts.
bool same_but_for_parts(OpInfo a, OpInfo b);
// Whether the descriptions of two members fit together: each part has one size at both ends, and
// all else is equal. An operation that was called while the membership changed may have parts for a
// different number of ranks. Such parts fit everything, because their member asks for the abort of
// the operation.
bool fit(const OpInfo& a, uint32_t rank_a, const OpInfo& b, uint32_t rank_b);

// Whether members may commit this operation without the master: as soon as one of them knows that
// all are done. No member is done before all have called the operation, so a member that receives
// an abort proposal knows the operation.
inline bool agreed_among_members(const OpInfo& info) {
  const bool all_to_each = info.kind == OpKind::kAllReduce || info.kind == OpKind::kAllGather ||
                           info.kind == OpKind::kReduceScatter || info.kind == OpKind::kAllToAll;
  return all_to_each && info.count > 0;
}

// The value that master and peers compare to find a mismatch: 64 bits over all fields of OpInfo but
// the sizes of uneven parts, which differ between the members. Never 0.
uint64_t digest(const OpInfo& info);
// The digest of the part of an operation that passes between two members.
uint64_t digest_of_part(uint64_t digest, uint64_t bytes);
// Seed for stochastic rounding of one peer's contribution or forwarded sum; without a peer, of the
// result. A peer forwards a block once at most, so its id identifies the hop. The key does not
// depend on epochs, so that an attempt after a loss has the same bits.
uint64_t random_key(Epoch generation, OpKey op, PeerId peer, Rounded what = Rounded::kWhole);

// Bytes of the tag and of the sizes of the parts of an operation, which all travel in one Resume.
template <typename Described>  // OpInfo, or a request for one
size_t carried_bytes(const Described& what) {
  return what.tag.size() + sizeof(uint64_t) * (what.sends.size() + what.receives.size());
}

bool reduces(OpKind kind);
bool has_root(OpKind kind);  // not kSend and kRecv, which have two peers

// "all_reduce(sum, float32, 1048576 elements, world size 4)": for error messages. `who` names a
// peer as the reader knows it ("rank 2"); without it, the peer has its id ("peer 1.3").
using PeerText = std::function<std::string(PeerId)>;
std::string text(const OpInfo& info, const PeerText& who = {});
// "(layer.3, #12)", or "(#12)" for the default tag.
std::string text(const OpInfo& info, OpKey op);
const char* text(OpKind kind);  // "all_reduce"

}  // namespace pccl::protocol
