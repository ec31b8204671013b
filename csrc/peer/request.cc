#include "csrc/peer/request.h"

#include "csrc/base/reducible.h"

namespace pccl::peer {

using protocol::OpKind;

namespace {

ring::Pattern pattern_of(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce: return ring::Pattern::kAllReduce;
    case OpKind::kBroadcast: return ring::Pattern::kBroadcast;
    case OpKind::kAllGather: return ring::Pattern::kAllGather;
    case OpKind::kSend: return ring::Pattern::kTransfer;
    case OpKind::kBarrier:
    case OpKind::kRecv: break;
  }
  PCCL_ASSERT(false);
}

bool names_a_rank(OpKind kind) {
  return kind == OpKind::kBroadcast || kind == OpKind::kSend || kind == OpKind::kRecv;
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
  if (request.kind == OpKind::kAllReduce) return check_reducible(request.dtype, request.reduce);
  if (!names_a_rank(request.kind)) return {};
  const auto world = static_cast<uint32_t>(membership.seen().members.size());
  if (request.root < 0 || static_cast<uint32_t>(request.root) >= world) {
    return invalid("there is no rank " + std::to_string(request.root) + ": the world size is " +
                   std::to_string(world));
  }
  const bool self = static_cast<uint32_t>(request.root) == membership.seen().rank;
  if (self && request.kind != OpKind::kBroadcast) {
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
  if (request.kind == OpKind::kBarrier) return info;
  info.dtype = request.dtype;
  info.count = request.count;
  if (request.kind == OpKind::kAllReduce) {
    info.reduce = request.reduce;
    info.keep = request.keep;
  }
  if (!names_a_rank(request.kind)) return info;
  const PeerId other = membership.seen().members[static_cast<uint32_t>(request.root)].peer;
  info.root = request.kind == OpKind::kSend ? membership.self() : other;
  if (request.kind == OpKind::kSend) info.receiver = other;
  if (request.kind == OpKind::kRecv) info.receiver = membership.self();
  PCCL_ASSERT(info.root != info.receiver);
  return info;
}

Status check_after_change(const protocol::OpInfo& info, const Membership& membership) {
  Status changed{Code::kMembershipChanged, {}, {}};
  for (const PeerId peer : {info.root, info.receiver}) {
    if (peer && !membership.rank_of(peer)) changed.peer = peer;
  }
  if (!changed.peer && info.kind != OpKind::kAllGather) return {};
  changed.message = std::string(text(info.kind)) + " was called while the membership changed: " +
                    (changed.peer ? "peer " + text(changed.peer) + " has left"
                                  : "it gathers from ranks that are no longer the same") +
                    "; look at the new ranks and call it again";
  return changed;
}

ring::Task task_of(const protocol::OpInfo& info, OpKey key, Handle handle,
                   const Membership& membership) {
  PCCL_ASSERT(info.kind != OpKind::kBarrier);
  PCCL_ASSERT(info.kind != OpKind::kBroadcast || membership.rank_of(info.root));
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
  task.keep = info.keep;
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
  const uint64_t bytes = task.shape.count * task.shape.element_bytes;
  if (info.kind == OpKind::kAllReduce && bytes <= membership.topology().one_shot_bytes) {
    task.shape.pattern = ring::Pattern::kOneShot;
    for (uint32_t at = 0; at < world; ++at) task.members.push_back(membership.peer_at(at));
    PCCL_ASSERT(task.members[ring_index] == membership.self());
    return task;
  }
  if (info.kind == OpKind::kAllReduce && world == 2 && task.shape.wan)
    task.shape.pattern = ring::Pattern::kPairwise;
  if (info.kind == OpKind::kBroadcast) {
    const uint32_t root = membership.ring_index_of(*membership.rank_of(info.root));
    task.shape.rank = (ring_index + world - root) % world;
  }
  const bool around = info.kind != OpKind::kBroadcast;  // the last member sends to the first
  if (world > 1 && (around || task.shape.rank > 0))
    task.upstream = membership.peer_at(ring_index + world - 1);
  if (world > 1 && (around || task.shape.rank < world - 1)) {
    task.downstream = membership.peer_at(ring_index + 1);
  }
  PCCL_ASSERT(task.shape.rank < world);
  PCCL_ASSERT(task.upstream != membership.self() && task.downstream != membership.self());
  return task;
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
