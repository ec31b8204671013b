// Shape: the pattern of an operation, and the sizes and ranks that its schedule depends on. A plain
// value.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/base/wire_format.h"
#include "csrc/ring/patterns.h"

namespace pccl::ring {

struct Shape {
  Pattern pattern = Pattern::kAllReduce;
  // The ring index; for a chain, the distance from its first rank: from the root (kBroadcast), from
  // the rank after the root (kReduce), from the source (kTransfer). If the bytes do not go around
  // the ring (one-shot operations, kExchange, kPairwise, kDirect), it is the rank in the group.
  uint32_t rank = 0;
  uint32_t world = 1;  // number of ranks; 2 for kTransfer, kPairwise
  uint64_t element_bytes = 1;
  // Elements of the whole tensor; for kAllGather and kReduceScatter, elements of one block; for a
  // one-shot operation, elements of the largest part; 0 for kExchange.
  uint64_t count = 0;
  WireFormat format = {};             // kAllReduce, kPairwise, kDirect: how the tensors travel
  std::vector<uint64_t> block_bytes;  // kTransfer only: bytes of each block
  // A wan path between members: chunks are smaller and more of them are in flight.
  bool wan = false;
  // kTransfer: true if other operations go before this transfer (Task::pulled). Its chunks are
  // smaller then, because the other operations wait for the chunk that is being sent.
  bool yields = false;
  // On wan paths: the bytes of scratch, if more than the standard number. Each member chooses for
  // itself.
  uint64_t scratch_bytes = 0;
  // kPairwise: true keeps all overwritten bytes until the operation ends; false keeps them only
  // until they have been sent. Each member chooses for itself.
  bool restored = true;
  // kDirect only: the share of each rank in each slice. All shares add up to
  // protocol::kSharesTotal, and a share may be 0.
  std::vector<uint16_t> shares = {};
  // A leg of kDirect or of a one-shot operation: the data from one rank to another one. One of the
  // two is this rank.
  struct Leg {
    uint32_t from = 0, to = 0;
  };
  std::optional<Leg> leg = {};
  // contributes(): the leg carries contributions, because the rank `to` owns a share. returns():
  // the leg carries results, because the rank `from` owns a share. A leg of a one-shot operation
  // carries a contribution only: each member computes its own result.
  bool contributes() const { return leg && (shares.empty() || shares[leg->to] > 0); }
  bool returns() const { return leg && !shares.empty() && shares[leg->from] > 0; }
  // The inputs of the random bits, only if `format` is stochastic. The bits are the same in each
  // attempt, and do not depend on the owner of a result.
  struct Random {
    // `own`: key of this member's contribution. `result`: key of the results.
    uint64_t own = 0, result = 0;
    uint64_t partial = 0;  // kAllReduce: key of the partial sums that this member sends
    uint64_t first = 0;    // first element of this operation in the tensor
  };
  Random random = {};
};

}  // namespace pccl::ring
