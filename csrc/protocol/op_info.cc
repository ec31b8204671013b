#include "csrc/protocol/op_info.h"

#include <cctype>

#include "csrc/base/text.h"

namespace pccl::protocol {
namespace {

// One step of a hash: each input bit affects every output bit (the finalizer of SplitMix64).
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

uint64_t word_of(const WireFormat& format) {
  return format.bits | uint64_t{format.result_bits} << 8 | uint64_t{format.block} << 16 |
         uint64_t{format.stochastic} << 32;
}

// Whether `count` is the size of one of several parts of a tensor.
bool has_parts(OpKind kind) {
  return kind == OpKind::kReduceScatter || kind == OpKind::kGather || kind == OpKind::kScatter ||
         kind == OpKind::kAllToAll;
}

}  // namespace

bool reduces(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter;
}

bool has_root(OpKind kind) {
  return kind == OpKind::kBroadcast || kind == OpKind::kReduce || kind == OpKind::kGather ||
         kind == OpKind::kScatter;
}

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
  hash = mix(hash, info.sends.size());
  hash = mix(hash, word_of(info.format));
  return hash == 0 ? 1 : hash;
}

uint64_t random_key(Epoch generation, OpKey op, PeerId peer, Rounded what) {
  uint64_t hash = mix(0, generation.value);
  hash = mix(hash, op.tag.value);
  hash = mix(hash, op.sequence);
  hash = mix(hash, peer.value);
  return what == Rounded::kWhole ? hash : mix(hash, static_cast<uint64_t>(what));
}

uint64_t digest_of_part(uint64_t digest, uint64_t bytes) {
  const uint64_t hash = mix(digest, bytes);
  return hash == 0 ? 1 : hash;
}

uint64_t sends_to(const OpInfo& info, uint32_t rank) {
  return info.sends.empty() ? info.count : info.sends.at(rank);
}

uint64_t receives_from(const OpInfo& info, uint32_t rank) {
  return info.receives.empty() ? info.count : info.receives.at(rank);
}

bool same_but_for_parts(OpInfo a, OpInfo b) {
  const bool uneven = a.sends.empty() == b.sends.empty();
  a.sends = a.receives = b.sends = b.receives = {};
  a.site = b.site = {};
  return uneven && a == b;
}

bool fit(const OpInfo& a, uint32_t rank_a, const OpInfo& b, uint32_t rank_b) {
  if (!same_but_for_parts(a, b)) return false;
  if (a.sends.size() != a.world_size || b.sends.size() != b.world_size) return true;
  return sends_to(a, rank_b) == receives_from(b, rank_a) &&
         sends_to(b, rank_a) == receives_from(a, rank_b);
}

std::string text(const OpInfo& info, const PeerText& who) {
  const auto name = [&who](PeerId peer) { return who ? who(peer) : "peer " + text(peer); };
  std::string what = text(info.kind);
  what += "(";
  if (reduces(info.kind)) what += lower(text(info.reduce)) + ", ";
  if (info.kind != OpKind::kBarrier) what += std::string(text(info.dtype)) + ", ";
  if (!info.sends.empty()) {
    what += "parts of different sizes, ";
  } else if (info.kind != OpKind::kBarrier) {
    what += count_text(info.count, "element") + (has_parts(info.kind) ? " a part, " : ", ");
  }
  if (info.kind == OpKind::kBroadcast || info.kind == OpKind::kScatter)
    what += "from " + name(info.root) + ", ";
  if (info.kind == OpKind::kReduce || info.kind == OpKind::kGather)
    what += "to " + name(info.root) + ", ";
  if (info.kind == OpKind::kSend || info.kind == OpKind::kRecv) {
    what += "from " + name(info.root) + " to " + name(info.receiver) + ", ";
  }
  if (info.format.quantizes()) what += "quantize=" + text(info.format) + ", ";
  what += "world size " + std::to_string(info.world_size);
  return what + (info.keep ? ", on_loss keep)" : ")");
}

std::string text(const OpInfo& info, OpKey op) {
  const std::string number = "#" + std::to_string(op.sequence) + ")";
  return info.tag.empty() ? "(" + number : "(" + info.tag + ", " + number;
}

const char* text(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce: return "all_reduce";
    case OpKind::kBroadcast: return "broadcast";
    case OpKind::kAllGather: return "all_gather";
    case OpKind::kBarrier: return "barrier";
    case OpKind::kSend: return "send";
    case OpKind::kRecv: return "recv";
    case OpKind::kReduce: return "reduce";
    case OpKind::kReduceScatter: return "reduce_scatter";
    case OpKind::kGather: return "gather";
    case OpKind::kScatter: return "scatter";
    case OpKind::kAllToAll: return "all_to_all";
  }
  return "unknown";
}

}  // namespace pccl::protocol
