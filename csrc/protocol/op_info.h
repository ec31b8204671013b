// OpInfo: the description of an operation. The members of the group compare their descriptions,
// which must be equal. Only the sizes of uneven parts may differ, and they must fit together. Plain
// values: any thread may use them.
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
// is the sender, and both sides describe the operation as a kSend.
struct OpInfo {
  OpKind kind = OpKind::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  // The number of elements of one rank's tensor. For kReduceScatter, kGather, kScatter and
  // kAllToAll: the number of elements of each part of this tensor.
  uint64_t count = 0;
  PeerId root{};            // of kBroadcast, kReduce, kGather, kScatter; kSend: the sender
  PeerId receiver{};        // kSend only
  uint32_t world_size = 0;  // as the application saw it when it called
  std::string tag;
  // kAllReduce, sum or average: after a loss, the finished elements keep their result.
  bool keep = false;
  uint64_t start = 0;  // number of elements, from the first, with a result from earlier epochs
  // For kAllGather and kAllToAll with parts of different sizes. `sends`: the number of elements of
  // the part for each rank. `receives`: the number of elements of the part from each rank. `count`
  // is 0 then. Empty: all parts have `count` elements.
  std::vector<uint64_t> sends{}, receives{};
  WireFormat format{};  // kAllReduce, sum or average: how its tensors travel if they are not small
  // With PCCL_CHECK_CALLSITE=1: the line of the application that made the call, "train.py:42 in
  // step". It may differ between the members.
  std::string site{};
  bool operator==(const OpInfo&) const = default;
};

// Return the number of elements that the member with this description sends to `rank`, or receives
// from it. REQUIRES: kAllGather or kAllToAll, and a description that has a part for this rank.
uint64_t sends_to(const OpInfo& info, uint32_t rank);
uint64_t receives_from(const OpInfo& info, uint32_t rank);
// Whether the two descriptions differ at most in the sizes of uneven parts, and in their sites.
bool same_but_for_parts(OpInfo a, OpInfo b);
// Whether the descriptions of two members fit together: each part has one size at both ends, and
// all else is equal. An operation that was called while the membership changed may have parts for a
// different number of ranks. Such parts fit everything, because their member asks for the abort of
// the operation.
bool fit(const OpInfo& a, uint32_t rank_a, const OpInfo& b, uint32_t rank_b);

// Whether a member may commit this operation without the master, as soon as it has learned that all
// members are done. No member is done with such an operation before all members have called it. So
// each receiver of an abort proposal has called the operation.
inline bool agreed_among_members(const OpInfo& info) {
  const bool all_to_each = info.kind == OpKind::kAllReduce || info.kind == OpKind::kAllGather ||
                           info.kind == OpKind::kReduceScatter || info.kind == OpKind::kAllToAll;
  return all_to_each && info.count > 0;
}

// The value that master and peers compare to find a mismatch: 64 bits over all fields of OpInfo but
// the sizes of uneven parts and the site, which may differ between the members. Never 0.
uint64_t digest(const OpInfo& info);
// The digest of the part that passes from one member to another one in an operation. `digest`: of
// the operation. `bytes`: the size of the part.
uint64_t digest_of_part(uint64_t digest, uint64_t bytes);
// Returns the seed for the stochastic rounding of the numbers that `peer` sends: its contribution,
// or a partial sum that it forwards (`what`). `peer` 0: the seed for the result. A peer forwards a
// block at most once, so its id identifies the hop. The seed does not depend on epochs, so that a
// repetition after a loss gives the same bits.
uint64_t random_key(Epoch generation, OpKey op, PeerId peer, Rounded what = Rounded::kWhole);

// Returns the number of bytes of the tag, of the part sizes and of the site of an operation. Those
// of all operations travel in one Resume.
template <typename Described>  // OpInfo, or a request for one
size_t carried_bytes(const Described& what) {
  return what.tag.size() + what.site.size() +
         sizeof(uint64_t) * (what.sends.size() + what.receives.size());
}

bool reduces(OpKind kind);
bool has_root(OpKind kind);  // false for kSend and kRecv, which have two peers

// "all_reduce(sum, float32, 1048576 elements, world size 4)": for error messages. `who` returns the
// name of a peer for the reader ("rank 2"). Without `who`, the text has the id ("peer 1.3").
using PeerText = std::function<std::string(PeerId)>;
std::string text(const OpInfo& info, const PeerText& who = {});
// "(layer.3, #12)", or "(#12)" for the default tag.
std::string text(const OpInfo& info, OpKey op);
const char* text(OpKind kind);  // "all_reduce"

}  // namespace pccl::protocol
