#include "csrc/peer/request.h"

#include <algorithm>
#include <numeric>

#include "csrc/base/reducible.h"
#include "csrc/memory/encoding.h"
#include "csrc/protocol/shares.h"

namespace pccl::peer {

using protocol::OpKind;

namespace {

// Bytes in the first burst of a lane that was idle: ten segments (RFC 6928).
constexpr uint64_t kBytesOfOneLane = 14 << 10;

ring::Pattern pattern_of(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce: return ring::Pattern::kAllReduce;
    case OpKind::kBroadcast: return ring::Pattern::kBroadcast;
    case OpKind::kAllGather: return ring::Pattern::kAllGather;
    case OpKind::kReduce: return ring::Pattern::kReduce;
    case OpKind::kReduceScatter: return ring::Pattern::kReduceScatter;
    case OpKind::kGather:
    case OpKind::kScatter:
    case OpKind::kAllToAll: return ring::Pattern::kExchange;
    case OpKind::kSend: return ring::Pattern::kTransfer;
    case OpKind::kBarrier:
    case OpKind::kRecv: break;
  }
  PCCL_ASSERT(false);
}

// The pattern of an operation with small parts.
ring::Pattern one_shot_pattern_of(OpKind kind) {
  return protocol::reduces(kind) ? ring::Pattern::kOneShot : ring::Pattern::kOneShotExchange;
}

bool is_transfer(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kRecv; }

bool names_a_rank(OpKind kind) { return protocol::has_root(kind) || is_transfer(kind); }

// Whether each part belongs to a certain rank, so that the operation needs all ranks as they were.
bool addresses_ranks(OpKind kind) {
  return kind == OpKind::kAllGather || kind == OpKind::kReduceScatter || kind == OpKind::kGather ||
         kind == OpKind::kScatter || kind == OpKind::kAllToAll;
}

bool may_have_uneven_parts(OpKind kind) {
  return kind == OpKind::kAllGather || kind == OpKind::kAllToAll;
}

// Number of elements that pass from the rank `from` to the rank `to`, which may be the same. One of
// the two is `self`, whose description of the operation is `info`.
uint64_t part_between(const protocol::OpInfo& info, uint32_t from, uint32_t to, uint32_t self,
                      uint32_t root) {
  switch (info.kind) {
    case OpKind::kAllReduce: return from == to ? 0 : info.count - info.start;
    case OpKind::kBroadcast: return from == root && to != root ? info.count : 0;
    case OpKind::kReduce: return from != root && to == root ? info.count : 0;
    case OpKind::kReduceScatter: return info.count;
    case OpKind::kGather: return to == root ? info.count : 0;
    case OpKind::kScatter: return from == root ? info.count : 0;
    case OpKind::kAllGather:
    case OpKind::kAllToAll:
      return from == self ? protocol::sends_to(info, to) : protocol::receives_from(info, from);
    case OpKind::kBarrier:
    case OpKind::kSend:
    case OpKind::kRecv: break;
  }
  PCCL_ASSERT(false);
}

// Number of elements in the largest part that passes between any two members. Nothing if this
// member does not know it: in an all-to-all, some parts neither come from it nor go to it.
std::optional<uint64_t> largest_part(const protocol::OpInfo& info) {
  if (info.sends.empty()) return info.count - info.start;
  if (info.kind != OpKind::kAllGather) return std::nullopt;
  return *std::max_element(info.receives.begin(), info.receives.end());
}

std::vector<ring::Part> parts_of(const protocol::OpInfo& info, uint64_t digest,
                                 const Membership& membership) {
  const uint32_t self = membership.topology().rank;
  const uint32_t root = info.root ? membership.rank_of(info.root).value() : 0;
  const uint64_t width = element_bytes(info.dtype);
  std::vector<ring::Part> parts;
  for (uint32_t rank = 0; rank < membership.world_size(); ++rank) {
    ring::Part part{.peer = membership.topology().members[rank].peer};
    part.to = part_between(info, self, rank, self, root) * width;
    part.from = part_between(info, rank, self, self, root) * width;
    part.digest_to = protocol::digest_of_part(digest, part.to);
    part.digest_from = protocol::digest_of_part(digest, part.from);
    parts.push_back(part);
  }
  return parts;
}

// A quantized all-reduce that is not small goes around the ring only if the run asks for it. Around
// the ring, each hop quantizes once more, and the result depends on the ring.
bool quantizes_each_hop(const protocol::OpInfo& info, const Membership& membership) {
  return info.format.quantizes() && membership.world_size() > 2 && membership.rings_only();
}

bool is_small(const protocol::OpInfo& info, const Membership& membership) {
  // A quantized tensor stays quantized, however little is left after its kept part.
  const bool quantizes = info.format.quantizes() && membership.world_size() > 1;
  const std::optional<uint64_t> largest = largest_part(info);
  const uint64_t elements = quantizes ? info.count : largest.value_or(0);
  return largest && elements * element_bytes(info.dtype) <= membership.topology().one_shot_bytes;
}

// Chooses the pattern of the task, and makes its parts if the pattern has parts. All members choose
// alike.
void take_form(ring::Task& task, const protocol::OpInfo& info, const Membership& membership) {
  const Topology& topology = membership.topology();
  const uint32_t world = membership.world_size();
  const bool all_reduces = info.kind == OpKind::kAllReduce;
  const bool quantizes = info.format.quantizes() && world > 1;
  const uint64_t bytes = task.shape.count * task.shape.element_bytes;
  if (is_small(info, membership)) {
    task.shape.pattern = one_shot_pattern_of(info.kind);
    task.shape.count = *largest_part(info);
  } else if (!info.sends.empty() || task.shape.pattern == ring::Pattern::kExchange) {
    task.shape.pattern = ring::Pattern::kExchange;
    task.shape.count = 0;
  } else if (all_reduces && world == 2 && (task.shape.wan || quantizes)) {
    task.shape.pattern = ring::Pattern::kPairwise;
    task.shape.rank = topology.rank;
    task.shape.format = info.format;
    return;
  } else if (quantizes_each_hop(info, membership)) {
    task.shape.format = info.format;
    task.shape.scratch_bytes = membership.scratch_bytes(2 * world - 3);
    return;
  } else if (all_reduces &&
             (quantizes || (!topology.shares.empty() && topology.direct.contain(bytes)))) {
    task.shape.pattern = ring::Pattern::kDirect;
    task.shape.shares = topology.shares.empty() ? protocol::equal_shares(world) : topology.shares;
    task.shape.format = info.format;
  } else {
    return;
  }
  task.parts = parts_of(info, task.digest, membership);
  task.shape.rank = topology.rank;
  PCCL_ASSERT(task.parts[topology.rank].peer == membership.self());
}

Status check_sizes(const std::vector<uint64_t>& sizes, const char* what, const OpRequest& request,
                   uint32_t world) {
  const auto invalid = [&](const std::string& why) {
    return Status{Code::kInvalidArgument, std::string(text(request.kind)) + ": " + why, {}};
  };
  if (sizes.size() != world) {
    return invalid("sizes of " + std::to_string(sizes.size()) + " parts to " + what +
                   ", and the world size is " + std::to_string(world));
  }
  uint64_t left = protocol::kTensorBytesMax / element_bytes(request.dtype);
  for (const uint64_t size : sizes) {
    if (size > left) {
      return invalid("the parts to " + std::string(what) + " are more than " +
                     std::to_string(protocol::kTensorBytesMax) + " bytes");
    }
    left -= size;
  }
  return {};
}

}  // namespace

TagId reserved_tag(const std::string& text) { return tag_id('\xff' + text); }

TagId tag_of(const protocol::OpInfo& info) {
  PCCL_ASSERT(info.kind != OpKind::kRecv);  // both ends describe a kSend
  if (info.kind != OpKind::kSend) return tag_id(info.tag);
  PCCL_ASSERT(info.root && info.receiver && info.root != info.receiver);
  return reserved_tag("p2p " + text(info.root) + " " + text(info.receiver) + " " + info.tag);
}

Status check(const OpRequest& request, const Membership& membership) {
  const auto invalid = [&](const std::string& what) {
    return Status{Code::kInvalidArgument, std::string(text(request.kind)) + ": " + what, {}};
  };
  if (request.tag.size() > protocol::kTagBytesMax) {
    return invalid("the tag has " + std::to_string(request.tag.size()) + " bytes, at most " +
                   std::to_string(protocol::kTagBytesMax) + " are allowed");
  }
  if (request.count > protocol::kTensorBytesMax / element_bytes(request.dtype)) {
    return invalid(std::to_string(request.count) + " elements of " + text(request.dtype) +
                   " are more than " + std::to_string(protocol::kTensorBytesMax) + " bytes");
  }
  if (request.keep && request.reduce != ReduceOp::kSum && request.reduce != ReduceOp::kAvg) {
    return invalid(std::string("on_loss=\"keep\" is for sums and averages, not for ") +
                   text(request.reduce));
  }
  if (protocol::reduces(request.kind)) {
    const Status reducible = check_reducible(request.dtype, request.reduce);
    if (!reducible.ok()) return reducible;
    const Status quantizable = check_quantizable(request.format, request.dtype, request.reduce);
    if (!quantizable.ok()) return invalid(quantizable.message);
  }
  const auto world = static_cast<uint32_t>(membership.seen().topology().members.size());
  if (addresses_ranks(request.kind) &&
      request.count > protocol::kTensorBytesMax / element_bytes(request.dtype) / world) {
    return invalid(std::to_string(world) + " parts of " + std::to_string(request.count) +
                   " elements of " + text(request.dtype) + " are more than " +
                   std::to_string(protocol::kTensorBytesMax) + " bytes");
  }
  if (!request.sends.empty() || !request.receives.empty()) {
    PCCL_ASSERT(may_have_uneven_parts(request.kind) && request.count == 0);
    Status status = check_sizes(request.sends, "send", request, world);
    if (status.ok()) status = check_sizes(request.receives, "receive", request, world);
    if (!status.ok()) return status;
  }
  if (!names_a_rank(request.kind)) return {};
  if (request.kind == OpKind::kRecv && request.root == kAnySource) {
    return world > 1 ? Status{} : invalid("from any rank: this process is alone in its group");
  }
  if (request.root < 0 || static_cast<uint32_t>(request.root) >= world) {
    return invalid("there is no rank " + std::to_string(request.root) + ": the world size is " +
                   std::to_string(world));
  }
  const bool self = static_cast<uint32_t>(request.root) == membership.seen().topology().rank;
  if (self && is_transfer(request.kind)) {
    return invalid("rank " + std::to_string(request.root) + " is this process itself");
  }
  return {};
}

// A field that does not matter to an operation keeps its default, so that it cannot differ between
// members.
protocol::OpInfo info_of(const OpRequest& request, const Membership& membership) {
  PCCL_ASSERT(check(request, membership).ok());
  protocol::OpInfo info;
  info.kind = request.kind == OpKind::kRecv ? OpKind::kSend : request.kind;
  info.tag = request.tag;
  info.site = request.site;
  if (request.kind == OpKind::kBarrier) return info;
  info.dtype = request.dtype;
  info.count = request.count;
  info.sends = request.sends;
  info.receives = request.receives;
  if (protocol::reduces(request.kind)) info.reduce = request.reduce;
  if (request.kind == OpKind::kAllReduce) info.keep = request.keep;
  if (request.kind == OpKind::kAllReduce) info.format = request.format;
  if (!names_a_rank(request.kind)) return info;
  const PeerId other =
      membership.seen().topology().members[static_cast<uint32_t>(request.root)].peer;
  info.root = request.kind == OpKind::kSend ? membership.self() : other;
  if (request.kind == OpKind::kSend) info.receiver = other;
  if (request.kind == OpKind::kRecv) info.receiver = membership.self();
  PCCL_ASSERT(info.root != info.receiver);
  return info;
}

bool can_be_absent_from(const protocol::OpInfo& info) {
  const bool adds = info.reduce == ReduceOp::kSum || info.reduce == ReduceOp::kAvg;
  return protocol::reduces(info.kind) && adds && info.count > info.start;
}

protocol::AbsentRanks absence_from(const protocol::OpInfo& info, const Membership& membership) {
  if (!can_be_absent_from(info)) return {};
  return protocol::AbsentRanks::of(membership.topology().rank, membership.world_size());
}

std::vector<PeerId> present(protocol::AbsentRanks absent, const Membership& membership) {
  std::vector<PeerId> peers;
  for (uint32_t rank = 0; rank < membership.world_size(); ++rank) {
    const bool here = !absent.contains(rank, membership.world_size());
    if (here) peers.push_back(membership.topology().members[rank].peer);
  }
  return peers;
}

Status check_absent(const OpRequest& request, const Membership& membership) {
  const uint32_t rank = membership.topology().rank, world = membership.world_size();
  if (protocol::AbsentRanks::can_have(rank, world)) return {};
  if (!can_be_absent_from(info_of(request, membership))) return {};
  return {Code::kInvalidState,
          std::string(text(request.kind)) + ": rank " + std::to_string(rank) + " of " +
              std::to_string(world) + " fetches the shared state, and only the last " +
              std::to_string(protocol::AbsentRanks::kMax) +
              " ranks can take part with zeros: first wait() for the sync_shared_state",
          {}};
}

Status check_after_change(const protocol::OpInfo& info, const Membership& membership) {
  Status changed{Code::kMembershipChanged, {}, {}};
  for (const PeerId peer : {info.root, info.receiver}) {
    if (peer && !membership.rank_of(peer)) changed.peer = peer;
  }
  if (!changed.peer && !addresses_ranks(info.kind)) return {};
  changed.message = std::string(text(info.kind)) + " was called while the membership changed: " +
                    (changed.peer ? "peer " + text(changed.peer) + " has left"
                                  : "its ranks are no longer the same") +
                    "; look at the new ranks and call it again";
  return changed;
}

Status check_format(const protocol::OpInfo& info, const Membership& membership) {
  const bool each_hop = quantizes_each_hop(info, membership) && !is_small(info, membership);
  if (!each_hop || info.format.bits != 4) return {};
  const uint32_t world = membership.world_size();
  return {Code::kInvalidArgument,
          std::string(text(info.kind)) + ": quantize=" + text(info.format) +
              " does not go around a ring of " + std::to_string(world) +
              " members (PCCL_PATTERN=ring): each of its " + std::to_string(world - 1) +
              " hops would round the sum to 4 bits once more; use bits=8 or BFloat16(), or set "
              "another PCCL_PATTERN on all peers",
          {}};
}

ring::Task task_of(const protocol::OpInfo& info, OpKey key, Handle handle,
                   const Membership& membership) {
  PCCL_ASSERT(info.kind != OpKind::kBarrier);
  PCCL_ASSERT(!protocol::has_root(info.kind) || membership.rank_of(info.root));
  PCCL_ASSERT(info.kind != OpKind::kSend ||
              (membership.rank_of(info.root) && membership.rank_of(info.receiver)));
  PCCL_ASSERT(info.start <= info.count && (info.start == 0 || info.keep));
  const uint32_t world = membership.world_size();
  ring::Task task;
  task.epoch = membership.epoch();
  task.op = key;
  task.digest = protocol::digest(info);
  task.handle = handle;
  task.shape.pattern = pattern_of(info.kind);
  task.shape.element_bytes = element_bytes(info.dtype);
  task.shape.count = info.count - info.start;
  task.shape.wan = membership.topology().wan;
  task.shape.scratch_bytes = membership.scratch_bytes(world - std::min(world, 2u));
  task.keep = info.keep;
  if (info.format.stochastic) {
    const auto key_of = [&](PeerId peer, Rounded what) {
      return protocol::random_key(membership.generation(), key, peer, what);
    };
    const PeerId self = membership.self();
    task.shape.random = {.own = key_of(self, Rounded::kWhole),
                         .result = key_of({}, Rounded::kWhole),
                         .partial = key_of(self, Rounded::kPartialSum),
                         .first = info.start};
  }
  if (info.kind == OpKind::kSend) {
    const bool source = info.root == membership.self();
    PCCL_ASSERT(source != (info.receiver == membership.self()));
    task.shape.rank = source ? 0 : 1;
    task.shape.world = 2;
    task.shape.block_bytes = {info.count * task.shape.element_bytes};
    (source ? task.downstream : task.upstream) = source ? info.receiver : info.root;
    return task;
  }
  const uint32_t ring_index = membership.ring_index_of(membership.topology().rank);
  task.shape.world = world;
  task.shape.rank = ring_index;
  take_form(task, info, membership);
  if (!task.parts.empty()) return task;
  if (protocol::has_root(info.kind)) {
    const uint32_t root = membership.ring_index_of(*membership.rank_of(info.root));
    const uint32_t first = info.kind == OpKind::kReduce ? root + 1 : root;
    task.shape.rank = (ring_index + world + world - first) % world;
  }
  const bool around = !protocol::has_root(info.kind);  // the last member sends to the first
  if (world > 1 && (around || task.shape.rank > 0))
    task.upstream = membership.peer_at(ring_index + world - 1);
  if (world > 1 && (around || task.shape.rank < world - 1)) {
    task.downstream = membership.peer_at(ring_index + 1);
  }
  PCCL_ASSERT(task.shape.rank < world);
  PCCL_ASSERT(task.upstream != membership.self() && task.downstream != membership.self());
  return task;
}

std::vector<PeerId> wide_legs(const ring::Task& task, const Membership& membership) {
  const ring::Shape& shape = task.shape;
  const bool direct = shape.pattern == ring::Pattern::kDirect;
  if (!shape.wan || !(direct || shape.pattern == ring::Pattern::kExchange)) return {};
  const memory::Encoding encoding = memory::encoding_of_contributions(shape.format);
  const uint64_t bits = encoding ? encoding->bits : 8 * shape.element_bytes;
  const uint64_t leg = shape.count * bits / 8 / shape.world;
  std::vector<PeerId> peers;
  for (const ring::Part& part : task.parts) {
    const uint64_t bytes = direct ? leg : std::max(part.to, part.from);
    if (part.peer != membership.self() && bytes > kBytesOfOneLane) peers.push_back(part.peer);
  }
  return peers;
}

std::vector<uint32_t> order_of(const ring::Task& task, const Membership& membership) {
  if (task.parts.empty()) return membership.topology().ring;
  std::vector<uint32_t> ranks(membership.world_size());
  std::iota(ranks.begin(), ranks.end(), 0u);
  return ranks;
}

std::string name(protocol::OpInfo info, OpKey key, const Membership& membership) {
  if (info.kind == OpKind::kSend && info.receiver == membership.self()) info.kind = OpKind::kRecv;
  const auto who = [&membership](PeerId peer) {
    const auto rank = membership.rank_of(peer);
    return rank ? "rank " + std::to_string(*rank) : "peer " + text(peer);
  };
  return text(info, who) + " " + text(info, key) + " in epoch " + text(membership.epoch());
}

}  // namespace pccl::peer
