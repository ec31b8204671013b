#include "csrc/protocol/messages.h"
#include "csrc/base/text.h"

#include <cctype>

namespace pccl::protocol {
namespace {

// One step of a hash in which each input bit reaches every output bit (the finalizer of
// SplitMix64).
uint64_t mix(uint64_t hash, uint64_t value) {
  uint64_t z = (hash ^ value) + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::string lower(std::string text) {
  for (char& letter : text)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

}  // namespace

uint64_t digest(const OpInfo& info) {
  uint64_t hash = 0;
  hash = mix(hash, static_cast<uint64_t>(info.kind));
  hash = mix(hash, static_cast<uint64_t>(info.dtype));
  hash = mix(hash, static_cast<uint64_t>(info.reduce));
  hash = mix(hash, info.count);
  hash = mix(hash, info.root.value);
  hash = mix(hash, info.receiver.value);
  hash = mix(hash, info.world_size);
  hash = mix(hash, info.tag.size());
  hash = mix(hash, tag_id(info.tag).value);
  hash = mix(hash, info.keep ? 1 : 0);
  hash = mix(hash, info.start);
  return hash == 0 ? 1 : hash;
}

std::string text(const OpInfo& info, const PeerText& who) {
  const auto name = [&who](PeerId peer) { return who ? who(peer) : "peer " + text(peer); };
  std::string what = text(info.kind);
  what += "(";
  if (info.kind == OpKind::kAllReduce) what += lower(text(info.reduce)) + ", ";
  if (info.kind != OpKind::kBarrier) {
    what += std::string(text(info.dtype)) + ", " + count_text(info.count, "element") + ", ";
  }
  if (info.kind == OpKind::kBroadcast) what += "from " + name(info.root) + ", ";
  if (info.kind == OpKind::kSend || info.kind == OpKind::kRecv) {
    what += "from " + name(info.root) + " to " + name(info.receiver) + ", ";
  }
  what += "world size " + std::to_string(info.world_size);
  return what + (info.keep ? ", on_loss keep)" : ")");
}

std::string text(const OpInfo& info, OpKey op) {
  const std::string number = "#" + std::to_string(op.sequence) + ")";
  return info.tag.empty() ? "(" + number : "(" + info.tag + ", " + number;
}

std::string text(const Member& member, const std::string& more) {
  const std::string peer = "peer " + text(member.peer);
  std::string rest = more;
  if (!member.address.empty()) rest += (more.empty() ? "" : ", ") + member.address;
  if (member.name.empty()) return rest.empty() ? peer : peer + " (" + rest + ")";
  return member.name + " (" + peer + (rest.empty() ? "" : ", " + rest) + ")";
}

const char* text(JointKind kind) {
  switch (kind) {
    case JointKind::kUpdateTopology: return "update_topology";
    case JointKind::kArePeersPending: return "are_peers_pending";
    case JointKind::kSyncSharedState: return "sync_shared_state";
  }
  return "unknown";
}

const char* text(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce: return "all_reduce";
    case OpKind::kBroadcast: return "broadcast";
    case OpKind::kAllGather: return "all_gather";
    case OpKind::kBarrier: return "barrier";
    case OpKind::kSend: return "send";
    case OpKind::kRecv: return "recv";
  }
  return "unknown";
}

}  // namespace pccl::protocol
