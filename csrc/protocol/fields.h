// fields: defines the fields of each message on the wire, with their order and their limits. There
// is one function per struct. The writer and the reader of codec.cc use the same function, so they
// cannot disagree. A `wire` (wire.h) takes numbers, truth values, enumerators, structs, optional
// structs, and lists and texts wrapped in bounded(), shown() or free_text(). Pure functions: any
// thread may call them.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"

namespace pccl::protocol {

// `T` is the struct `S`: const when it is written, and not const when it is read.
template <typename T, typename S>
concept Is = std::same_as<std::remove_const_t<T>, S>;

// A list or a name. `max`: the largest number of entries or bytes that it may have.
template <typename T>
struct Bounded {
  T& content;
  size_t max;
};
template <typename T>
Bounded<T> bounded(T& content, size_t max) {
  return {content, max};
}

// A name that is shown to people. A reader refuses a name that is not printable (text.h).
template <typename T>
struct Shown {
  T& content;
  size_t max;
};
template <typename T>
Shown<T> shown(T& content, size_t max) {
  return {content, max};
}

// A text for people. A writer cuts a text that is too long, and a reader refuses it.
template <typename T>
struct FreeText {
  T& content;
};
template <typename T>
FreeText<T> free_text(T& content) {
  return {content};
}

void fields(auto& wire, Is<PeerId> auto& id) { wire(id.value); }
void fields(auto& wire, Is<Epoch> auto& epoch) { wire(epoch.value); }
void fields(auto& wire, Is<GroupId> auto& group) { wire(group.value); }
void fields(auto& wire, Is<TagId> auto& tag) { wire(tag.value); }
void fields(auto& wire, Is<WireFormat> auto& m) {
  wire(m.bits, m.block, m.result_bits, m.stochastic);
}
void fields(auto& wire, Is<OpKey> auto& op) { wire(op.tag, op.sequence); }

void fields(auto& wire, Is<Key> auto& m) { wire(m.words[0], m.words[1], m.words[2], m.words[3]); }
void fields(auto& wire, Is<LaneIdentity> auto& m) {
  wire(m.dialler, m.acceptor, m.incarnation, m.number);
}
void fields(auto& wire, Is<LaneCredential> auto& m) { wire(m.identity, m.key); }

void fields(auto& wire, Is<Member> auto& m) {
  wire(m.peer, free_text(m.address), shown(m.name, kNameBytesMax));
}
void fields(auto& wire, Is<OpReport> auto& m) { wire(m.op, m.state, m.finished); }
void fields(auto& wire, Is<Kept> auto& m) { wire(m.op, m.finished); }
void fields(auto& wire, Is<Verdict> auto& m) {
  wire(m.op, m.outcome, m.code, free_text(m.text), m.sender, m.receiver, m.last, m.last_us);
  wire(m.unacknowledged, m.mac);
}
void fields(auto& wire, Is<OpInfo> auto& m) {
  wire(m.kind, m.dtype, m.reduce, m.count, m.root, m.receiver, m.world_size);
  wire(shown(m.tag, kTagBytesMax), m.keep, m.start);
  wire(bounded(m.sends, kMembersMax), bounded(m.receives, kMembersMax));
  wire(m.format, shown(m.site, kSiteBytesMax));
}
void fields(auto& wire, Is<StateEntry> auto& m) {
  wire(bounded(m.key, kStateKeyBytesMax), m.dtype, bounded(m.shape, kShapeDimensionsMax), m.hash,
       m.subtype);
}
void fields(auto& wire, Is<Offer> auto& m) {
  wire(m.revision, m.strategy, bounded(m.entries, kStateKeysMax), m.digest, m.partial);
}
void fields(auto& wire, Is<Settled> auto& m) { wire(m.group, m.generation, m.voter, m.number); }

// A time is a u32 on the wire, in milliseconds.
void fields(auto& wire, Is<Duration> auto& time) {
  auto ms = static_cast<uint32_t>(time / std::chrono::milliseconds(1));
  wire(ms);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(time)>>)
    time = std::chrono::milliseconds(ms);
}
void fields(auto& wire, Is<RunSettings> auto& m) {
  wire(m.on_peer_loss, m.pattern, m.peer_timeout, m.first_call_timeout, m.call_timeout);
}
void fields(auto& wire, Is<GivenSettings> auto& m) {
  wire(m.on_peer_loss, m.pattern, m.peer_timeout, m.first_call_timeout, m.call_timeout);
}

void fields(auto& wire, Is<ReconfigureHandle> auto& m) {
  wire(shown(m.at.host, kHostBytesMax), m.at.port);
  wire(shown(m.group, ReconfigureHandle::kGroupDigits), m.generation);
  wire(shown(m.key, ReconfigureHandle::kKeyDigits));
}
void fields(auto& wire, Is<Rendezvous> auto& m) {
  wire(m.uuid, bounded(m.handles, kMembersMax), m.rank, free_text(m.refusal), m.invites);
}
void fields(auto& wire, Is<Regroup> auto& m) { wire(m.with, m.timeout_ms); }
void fields(auto& wire, Is<Regrouped> auto& m) { wire(m.uuid, m.code, free_text(m.text)); }
void fields(auto& wire, Is<Hello> auto& m) {
  wire.introduction(m.magic, m.versions);
  wire(free_text(m.library), bounded(m.run, kRunNameBytesMax), m.group, m.founders, m.min_peers);
  wire(m.rank, m.join_timeout_ms, bounded(m.launch, kLaunchBytesMax));
  wire(bounded(m.name, kNameBytesMax), m.settings, m.rendezvous);
}
void fields(auto& wire, Is<Reject> auto& m) {
  wire.code_of_any_version(m.code);
  wire(free_text(m.text));
}
void fields(auto& wire, Is<Welcome> auto& m) {
  wire(m.peer, m.run_id, m.incarnation, shown(m.seen_host, kHostBytesMax), m.loopback_only);
  wire(m.version, m.accepting, m.settings);
}
void fields(auto& wire, Is<Endpoint> auto& at) {
  wire(shown(at.host, kNumericHostBytesMax), at.port);
}
void fields(auto& wire, Is<Register> auto& m) {
  wire(shown(m.host, kHostBytesMax), m.port, bounded(m.others, kOtherAddressesMax));
}
void fields(auto& wire, Is<Ping> auto& m) { wire(m.counter, m.verdict_index, m.epoch); }
void fields(auto& wire, Is<Pong> auto& m) { wire(m.counter, m.verdict_index, m.epoch); }

void fields(auto& wire, Is<Dial> auto& m) {
  wire(m.peer, shown(m.host, kHostBytesMax), m.port, m.dead_serial);
  wire(bounded(m.others, kOtherAddressesMax), m.credential);
}
void fields(auto& wire, Is<Forget> auto& m) { wire(m.peer); }
void fields(auto& wire, Is<LinkReport> auto& m) {
  wire(m.peer, m.state, free_text(m.text), m.serial, m.rtt, m.fault);
}
void fields(auto& wire, Is<LinkRate> auto& m) { wire(m.peer, m.rate); }
void fields(auto& wire, Is<LinkRates> auto& m) { wire(bounded(m.links, kMembersMax)); }
void fields(auto& wire, Is<Notice> auto& m) { wire(free_text(m.text)); }

void fields(auto& wire, Is<DirectSizes> auto& m) { wire(m.from, m.to); }
void fields(auto& wire, Is<EpochStart> auto& m) {
  wire(m.epoch, m.generation, bounded(m.members, kMembersMax), bounded(m.ring, kMembersMax));
  wire(bounded(m.joined, kMembersMax), bounded(m.left, kMembersMax), m.min_peers);
  wire(bounded(m.together, kGroupsNamedMax), m.one_shot_bytes, m.rtt);
  wire(bounded(m.shares, kMembersMax), m.direct);
}
void fields(auto& wire, Is<FreezeRequest> auto& m) { wire(m.epoch, bounded(m.lost, kMembersMax)); }
void fields(auto& wire, Is<StateReport> auto& m) { wire(m.epoch, bounded(m.ops, kOpsOpenMax)); }
void fields(auto& wire, Is<Verdicts> auto& m) {
  wire(m.epoch, m.first_index, bounded(m.verdicts, kOpsOpenMax));
}
void fields(auto& wire, Is<EpochEnd> auto& m) {
  wire(m.epoch, bounded(m.lost, kMembersMax), bounded(m.committed, kVerdictsMax),
       free_text(m.text));
  wire(m.continuation, bounded(m.kept, kVerdictsMax));
}

void fields(auto& wire, Is<Begin> auto& m) { wire(m.epoch, m.op, m.info); }
void fields(auto& wire, Is<Done> auto& m) { wire(m.epoch, m.op, m.verdict_index); }
void fields(auto& wire, Is<AbortRequest> auto& m) {
  wire(m.epoch, m.op, m.code, free_text(m.text));
}
void fields(auto& wire, Is<AbortProposal> auto& m) {
  wire(m.epoch, m.op, m.code, free_text(m.text));
}
void fields(auto& wire, Is<AbortAnswer> auto& m) { wire(m.epoch, m.op, m.state); }

void fields(auto& wire, Is<AwaitSend> auto& m) {
  wire(m.epoch, shown(m.tag, kTagBytesMax), m.count);
}
void fields(auto& wire, Is<SendBegun> auto& m) {
  wire(m.epoch, m.sender, shown(m.tag, kTagBytesMax), m.sequence);
}

void fields(auto& wire, Is<Blocked> auto& m) {
  wire(m.epoch, bounded(m.ops, kBlockedWaitsMax), m.joint, m.certain, m.threads);
}

void fields(auto& wire, Is<Observe> auto& m) { wire(m.interval_ms); }
void fields(auto& wire, Is<Scalar> auto& m) { wire(shown(m.name, kScalarNameBytesMax), m.value); }
void fields(auto& wire, Is<LinkTelemetry> auto& m) {
  wire(m.peer, m.bytes_sent, m.bytes_received, m.lanes, m.lanes_used, m.rtt_us, m.segments_again);
}
void fields(auto& wire, Is<Telemetry> auto& m) {
  wire(m.all_us, m.waiting_us, m.transferring_us, m.joint_us, m.saving_us, m.failing_us);
  wire(m.waits_for, m.waits_for_us, m.bytes_sent, m.bytes_received);
  wire(bounded(m.links, kLinksReportedMax), bounded(m.scalars, kScalarsMax));
}

void fields(auto& wire, Is<Vote> auto& m) {
  wire(m.number, m.kind, m.offer, m.epoch, m.background, m.budget_ms, m.max_bytes);
}
void fields(auto& wire, Is<JointAbort> auto& m) { wire(m.number, m.epoch); }
void fields(auto& wire, Is<RankPair> auto& m) { wire(m.low, m.high); }
void fields(auto& wire, Is<TopologyPlan> auto& m) {
  wire(m.epoch, m.adopted, bounded(m.ring, kMembersMax), bounded(m.shares, kMembersMax), m.direct);
  wire(m.before_us, m.after_us, bounded(m.rates, kMembersMax * kMembersMax));
  wire(bounded(m.measured, kPairsMax), bounded(m.missing, kPairsMax), free_text(m.note));
}
void fields(auto& wire, Is<Answer> auto& m) {
  wire(m.number, m.kind, m.code, free_text(m.text), m.pending, m.revision, m.state_hash);
  wire(bounded(m.together, kGroupsNamedMax), m.plan, m.mac);
}
void fields(auto& wire, Is<SyncPlan> auto& m) {
  wire(m.number, m.revision, bounded(m.entries, kStateKeysMax), bounded(m.keys, kStateKeysMax));
  wire(bounded(m.sources, kMembersMax), bounded(m.receivers, kMembersMax), free_text(m.gone));
}
void fields(auto& wire, Is<ListRequest> auto& m) { wire(m.number); }
void fields(auto& wire, Is<StateList> auto& m) {
  wire(m.number, m.epoch, bounded(m.entries, kStateKeysMax));
}
void fields(auto& wire, Is<Fetched> auto& m) { wire(m.number, m.code, free_text(m.text)); }
void fields(auto& wire, Is<Fetching> auto& m) { wire(m.number); }
void fields(auto& wire, Is<Probe> auto& m) { wire(m.round, m.peer, m.milliseconds, m.bytes_max); }
void fields(auto& wire, Is<ProbeReport> auto& m) { wire(m.round, m.peer, m.bytes, m.milliseconds); }

void fields(auto&, Is<Leave> auto&) {}
void fields(auto& wire, Is<Kicked> auto& m) { wire(free_text(m.text)); }
void fields(auto&, Is<Farewell> auto&) {}
void fields(auto& wire, Is<Uncalled> auto& m) { wire(m.op, m.sender, m.receiver); }
void fields(auto& wire, Is<Resume> auto& m) {
  wire.introduction(m.magic, m.versions);
  wire(bounded(m.run, kRunNameBytesMax), m.run_id, m.peer, m.epoch, m.ended,
       m.needs_reconfiguration);
  wire(bounded(m.ops, kOpsOpenMax), bounded(m.infos, kOpsOpenMax), m.verdict_index, m.stable_index);
  wire(bounded(m.verdicts, kOpsOpenMax), m.joint_answered, m.last_answer);
  wire(bounded(m.together, kGroupsNamedMax), m.pending, m.standing, m.hello);
  wire(bounded(m.uncalled, kOpsOpenMax));
}
void fields(auto& wire, Is<Resumed> auto& m) {
  wire(m.incarnation, m.accepting, bounded(m.members, kMembersMax));
}

void fields(auto& wire, Is<Watch> auto& m) {
  wire.introduction(m.magic, m.versions);
  wire(bounded(m.run, kRunNameBytesMax));
}
void fields(auto& wire, Is<Snapshot> auto& m) {
  wire(bounded(m.part, kSnapshotPartBytesMax), m.last);
}

void fields(auto& wire, Is<DialBack> auto& m) {
  wire.introduction(m.magic, m.versions);
  wire(m.port);
}
void fields(auto& wire, Is<DialedBack> auto& m) {
  wire(free_text(m.host), m.connected, m.fault, m.proof, m.unix_ms);
}

// The last enumerator of each enum. A number from the network is valid if it is not above the
// number of this enumerator.
constexpr Code last(Code) { return Code::kProtocol; }
constexpr DType last(DType) { return static_cast<DType>(kDTypeCount - 1); }
constexpr ReduceOp last(ReduceOp) { return static_cast<ReduceOp>(kReduceOpCount - 1); }
constexpr LossPolicy last(LossPolicy) { return LossPolicy::kRetry; }
constexpr PatternChoice last(PatternChoice) { return PatternChoice::kDirect; }
constexpr Standing last(Standing) { return Standing::kSynced; }
constexpr LinkState last(LinkState) { return LinkState::kUnreachable; }
constexpr LinkFault last(LinkFault) { return LinkFault::kOnlySmallPackets; }
constexpr OpState last(OpState) { return OpState::kReturned; }
constexpr Continuation last(Continuation) { return Continuation::kKept; }
constexpr Outcome last(Outcome) { return Outcome::kAborted; }
constexpr OpKind last(OpKind) { return OpKind::kAllToAll; }
constexpr JointKind last(JointKind) { return JointKind::kOptimizeTopology; }
constexpr SyncStrategy last(SyncStrategy) { return SyncStrategy::kReceiveOnly; }

// The number of a message on the wire, which never changes, and the name of the message.
struct Kind {
  uint16_t type;
  const char* name;
};
template <typename M>
inline constexpr Kind kKind{};
// clang-format off
template <> inline constexpr Kind kKind<Hello>{1, "Hello"};
template <> inline constexpr Kind kKind<Reject>{2, "Reject"};
template <> inline constexpr Kind kKind<Welcome>{3, "Welcome"};
template <> inline constexpr Kind kKind<Register>{4, "Register"};
template <> inline constexpr Kind kKind<Ping>{5, "Ping"};
template <> inline constexpr Kind kKind<Pong>{6, "Pong"};
template <> inline constexpr Kind kKind<Dial>{7, "Dial"};
template <> inline constexpr Kind kKind<Forget>{8, "Forget"};
template <> inline constexpr Kind kKind<LinkReport>{9, "LinkReport"};
template <> inline constexpr Kind kKind<Notice>{10, "Notice"};
template <> inline constexpr Kind kKind<EpochStart>{11, "EpochStart"};
template <> inline constexpr Kind kKind<FreezeRequest>{12, "FreezeRequest"};
template <> inline constexpr Kind kKind<StateReport>{13, "StateReport"};
template <> inline constexpr Kind kKind<Verdicts>{14, "Verdicts"};
template <> inline constexpr Kind kKind<EpochEnd>{15, "EpochEnd"};
template <> inline constexpr Kind kKind<Begin>{16, "Begin"};
template <> inline constexpr Kind kKind<Done>{17, "Done"};
template <> inline constexpr Kind kKind<AbortRequest>{18, "AbortRequest"};
template <> inline constexpr Kind kKind<Vote>{19, "Vote"};
template <> inline constexpr Kind kKind<JointAbort>{20, "JointAbort"};
template <> inline constexpr Kind kKind<Answer>{21, "Answer"};
template <> inline constexpr Kind kKind<SyncPlan>{22, "SyncPlan"};
template <> inline constexpr Kind kKind<Fetched>{23, "Fetched"};
template <> inline constexpr Kind kKind<Leave>{24, "Leave"};
template <> inline constexpr Kind kKind<Kicked>{25, "Kicked"};
template <> inline constexpr Kind kKind<Resume>{26, "Resume"};
template <> inline constexpr Kind kKind<Resumed>{27, "Resumed"};
template <> inline constexpr Kind kKind<AbortProposal>{28, "AbortProposal"};
template <> inline constexpr Kind kKind<Farewell>{29, "Farewell"};
template <> inline constexpr Kind kKind<AwaitSend>{30, "AwaitSend"};
template <> inline constexpr Kind kKind<SendBegun>{31, "SendBegun"};
template <> inline constexpr Kind kKind<LinkRates>{32, "LinkRates"};
template <> inline constexpr Kind kKind<Fetching>{34, "Fetching"};
template <> inline constexpr Kind kKind<ListRequest>{35, "ListRequest"};
template <> inline constexpr Kind kKind<StateList>{36, "StateList"};
template <> inline constexpr Kind kKind<Probe>{37, "Probe"};
template <> inline constexpr Kind kKind<ProbeReport>{38, "ProbeReport"};
template <> inline constexpr Kind kKind<Blocked>{39, "Blocked"};
template <> inline constexpr Kind kKind<Watch>{40, "Watch"};
template <> inline constexpr Kind kKind<Snapshot>{41, "Snapshot"};
template <> inline constexpr Kind kKind<Observe>{42, "Observe"};
template <> inline constexpr Kind kKind<Telemetry>{43, "Telemetry"};
template <> inline constexpr Kind kKind<DialBack>{44, "DialBack"};
template <> inline constexpr Kind kKind<DialedBack>{45, "DialedBack"};
template <> inline constexpr Kind kKind<AbortAnswer>{46, "AbortAnswer"};
template <> inline constexpr Kind kKind<Regroup>{47, "Regroup"};
template <> inline constexpr Kind kKind<Regrouped>{48, "Regrouped"};
// clang-format on

}  // namespace pccl::protocol
