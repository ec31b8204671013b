// limits: every maximum of the protocol, each with its reason. Constants: any thread may read them.
// Invariants:
// 1. A sender stays within every limit by construction.
// 2. A receiver that reads a number above its limit closes the connection.
// 3. The limits bound the memory that a hostile byte stream can make a process allocate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "csrc/base/clock.h"

namespace pccl::protocol {

// Marks the limits of everything that grows with the number of messages. The targets of tests/fuzz
// are built with a thousandth of these limits, so that a short input can exceed them. A limit that
// is larger than another one stays larger.
constexpr size_t large(size_t limit) {
#ifdef PCCL_FUZZ_LIMITS
  return limit / 1000;
#else
  return limit;
#endif
}

// The largest number of bytes of one control message. The largest messages of an honest sender are
// a StateList and a SyncPlan of kStateKeysMax keys with short names (about 6 MiB).
inline constexpr size_t kMessageBytesMax = large(16u << 20);
// The largest numbers of bytes of the names that people choose (run, tag, key, host). Longer names
// are refused where they are entered.
inline constexpr size_t kRunNameBytesMax = 128;
inline constexpr size_t kTagBytesMax = 256;
inline constexpr size_t kSiteBytesMax = 128;  // a longer name of a file or a function is cut
// Priority of an operation, on this peer.
inline constexpr int kPriorityMin = -8, kPriorityMax = 7;
inline constexpr size_t kPriorities = kPriorityMax - kPriorityMin + 1;
inline constexpr size_t kNameBytesMax = 64;     // name of a peer; shown in many texts
inline constexpr size_t kLaunchBytesMax = 256;  // made from the names of hosts and of launchers
inline constexpr size_t kStateKeyBytesMax = 512;
inline constexpr size_t kHostBytesMax = 255;  // RFC 1035: a domain name
// The largest number of further addresses of a peer, beside the address that is tried first.
inline constexpr size_t kOtherAddressesMax = 7;
inline constexpr size_t kNumericHostBytesMax = 45;  // an IPv6 address that contains an IPv4 one
// Texts in messages are cut to this number of bytes, so that an error never grows with the number
// of peers.
inline constexpr size_t kTextBytesMax = 4096;
// The largest number of members of one peer group. Each member keeps a link to every other member,
// and each EpochStart lists all members.
inline constexpr size_t kMembersMax = 128;
// The number of pairs of kMembersMax members.
inline constexpr size_t kPairsMax = kMembersMax * (kMembersMax - 1) / 2;
// The largest number of links that a peer accepts from peers that the master has not named to it
// (section 6). A further link replaces the oldest one.
inline constexpr size_t kUnnamedLinksMax = kMembersMax;
// The largest number of gone peers that a peer remembers. It refuses their links, although they
// have had keys (section 6). A further gone peer replaces the oldest one.
inline constexpr size_t kGonePeersMax = 1u << 16;
// The serial number of a connection is at most this far above the last known serial number of the
// same pair (section 2). Honest peers need at most two numbers a second.
inline constexpr uint32_t kSerialStepMax = 1u << 28;
// The highest serial number that a peer or the master accepts. The numbers above it leave room for
// the next ones, so that no number ever wraps.
inline constexpr uint32_t kSerialMax = 1u << 31;
// The largest number of peer groups of one run, including groups that have nothing left but their
// shared state. A machine has one group for each of its processes.
inline constexpr size_t kGroupsMax = 1024;
// The largest number of peer groups that an answer names as settled together. The answer names each
// group of its run at most once. If an older journal has brought more groups than a run may have,
// the master names no group.
inline constexpr size_t kGroupsNamedMax = kGroupsMax;
// The largest number of runs with connected peers that one master serves. A run without traffic
// costs a few KiB.
inline constexpr size_t kRunsMax = 1024;
// The largest number of founded runs whose peers are all away and expected back. Beyond this limit,
// the master finds the network with the largest number of such runs, and ends the oldest such run
// of that network.
inline constexpr size_t kRunsAwayMax = 4096;
// `kRunsKnownMax`: the largest number of runs that a master knows, finished ones included.
// `kRunsPerNetworkMax`: the same for the runs of one network. A finished run is a line of some
// hundred bytes in memory and in the journal. The line counts as one run for every kStatesPerLine
// shared states that the run has agreed on, so that the size of all lines is limited, too.
inline constexpr size_t kRunsKnownMax = 65536;
inline constexpr size_t kRunsPerNetworkMax = 1024;
inline constexpr size_t kStatesPerLine = 8;
// The largest number of entries of a shared state. A large model has some thousands of tensors.
inline constexpr size_t kStateKeysMax = large(65536);
// An offer with more entries than this contains only their digest. The list of its entries follows
// if the master needs it. A short list in the offer saves that round trip.
inline constexpr size_t kStateListedMax = 64;
// The largest number of bytes of all tensors of a state together: the address space of a process.
inline constexpr uint64_t kStateBytesMax = uint64_t{1} << 47;
// The largest number of dimensions of one tensor of a shared state. Frameworks stop at 64.
inline constexpr size_t kShapeDimensionsMax = 64;
// The number of bytes of one piece of a shared state. A piece is the unit of transfer and
// verification. The number is a multiple of the tile of the state hash. Larger pieces would lose
// more data when a peer is lost, and smaller pieces would need more requests.
inline constexpr uint64_t kStateUnitBytes = 4u << 20;
// The largest number of pieces of one state, so that the list of the pieces that a peer has is
// small. A state of more than 256 GiB has larger pieces.
inline constexpr uint32_t kStatePiecesMax = 65536;
// One peer may have at most this many requests for pieces waiting here. An honest peer has far
// fewer.
inline constexpr size_t kStateRequestsMax = 64;
// The highest index of a verdict that is accepted. An epoch never has this many verdicts. So the
// indexes stay far below an overflow, whatever the members report after a restart.
inline constexpr uint64_t kVerdictIndexMax = uint64_t{1} << 62;
// The largest number of operations that a peer has posted and that are not settled. Beyond this
// limit, posting fails with InvalidStateError. A member that begins more, or that leaves more
// verdicts unacknowledged, is removed.
inline constexpr size_t kOpsOpenMax = large(65536);
// The largest number of open operations of a group, plus its verdicts that not all members have
// acknowledged. When an operation begins, an entry in the list of verdicts is reserved for it. So
// the verdicts fit, even if all operations end at once. The limit bounds the lists of an EpochEnd
// (12 and 20 bytes an entry: 8 MiB) and of an epoch in the journal. One member holds at most half
// of it. A group beyond it ends its run.
inline constexpr size_t kVerdictsMax = 4 * kOpsOpenMax;
// All verdicts within kVerdictsMax together have at most this many bytes of texts. A text that
// would exceed the limit is left out. The limit exists because a peer returns up to kOpsOpenMax
// verdicts in its Resume, which has room for 16 MiB. Operations and their tags take 9 MiB of it,
// verdicts 4 MiB, their texts 1 MiB, and operations that the peer has not called yet 2 MiB.
inline constexpr size_t kVerdictTextBytesMax = large(1u << 20);
// The largest number of operations of a group that the master knows, including settled ones that
// not all members have called yet. Beyond this limit the run ends.
inline constexpr size_t kOpsKnownMax = 4 * kOpsOpenMax;
// The largest number of these operations that one member has begun. A member beyond it is removed.
inline constexpr size_t kOpsBegunMax = kOpsKnownMax / 2;
// The largest number of bytes of the tags and of the part sizes of all open operations of a member.
// They all travel in one Resume, and the master keeps them. Beyond this limit, posting fails with
// InvalidStateError.
inline constexpr size_t kCarriedBytesMax = kMessageBytesMax / 4;
// The largest number of sends that one AwaitSend asks for. A peer that waits for more sends asks
// again when these have begun.
inline constexpr uint32_t kAwaitedSendsMax = 64;
// The largest number of tags with a receive from any source that waits at one peer. The master
// keeps an entry for each tag. Beyond this limit, the receive fails with InvalidStateError.
inline constexpr size_t kAwaitedTagsMax = 1024;
// The largest number of threads of an application whose waits a peer keeps, for each group. With
// more threads, a peer reports none of its waits.
inline constexpr size_t kBlockedWaitsMax = 16;
// An application blocks when it has waited for one call for this time. The end of an ordinary wait
// comes sooner, so training causes no messages about waits.
inline constexpr Duration kBlockedAfter = std::chrono::seconds(1);
// A cycle of waits is an error when the master has known it for this time. Messages that end a wait
// may be on their way.
inline constexpr Duration kCycleStandsFor = std::chrono::seconds(2);
// The largest number of numbers that an application reports at a time, and of bytes of their names.
inline constexpr size_t kScalarsMax = 8;
inline constexpr size_t kScalarNameBytesMax = 32;
// The largest number of links of a Telemetry: to the two neighbours in the ring.
inline constexpr size_t kLinksReportedMax = 2;
// The largest number of ranks that an error text names one by one, before "and N more".
inline constexpr size_t kRanksNamedMax = 8;

// The header and the trailer of a lane frame each have one size (PROTOCOL.md, section 6).
inline constexpr size_t kFrameHeaderBytes = 64;
inline constexpr size_t kFrameTrailerBytes = 8;
// The largest number of payload bytes of one chunk. A larger chunk would leave the cache before it
// is reduced.
inline constexpr size_t kChunkBytesMax = 4u << 20;
// The largest chunks of a collective. `kChunkBytesWan`: on wan paths, in payload bytes. A lane of a
// wan path that is slow for a while holds its current chunk, and at the end all ranks wait for that
// chunk. `kChunkBytesNear`: on other paths, if there are more than two members, in bytes in memory.
// The chunks of several ranks on one machine share its caches. The master predicts with both sizes
// how long a chunk takes from one member to the next.
inline constexpr uint64_t kChunkBytesWan = 64u << 10;
inline constexpr uint64_t kChunkBytesNear = 256u << 10;
// The largest chunk of shared state on paths that are not wan paths, in payload bytes. Collectives
// leave before shared state, but wait for the chunk that is being sent: for 42 ms at 25 Mbit/s.
inline constexpr uint64_t kChunkBytesOfState = 128u << 10;
static_assert(kChunkBytesWan <= kChunkBytesMax && kChunkBytesNear <= kChunkBytesMax &&
              kChunkBytesOfState <= kChunkBytesMax);
// `kOneShotBytesMax`: the largest part of a one-shot operation (section 6), in bytes.
// `kOneShotMembersMax`: the largest number of members that use such operations. Each member keeps
// the tensors of all other members, and sends its own tensor to each of them.
inline constexpr uint32_t kOneShotBytesMax = 64u << 10;
inline constexpr size_t kOneShotMembersMax = 32;
// The sum of the shares of all owners in the direct pattern (section 6). Even with kMembersMax
// members, equal shares are not below 2.
inline constexpr uint16_t kSharesTotal = 256;
static_assert(kSharesTotal >= kMembersMax);
// The lowest RTT of a wan path. A wan path has several lanes, which pace their data, and carries
// smaller chunks, with more of them in flight.
inline constexpr Duration kWanRttMin = std::chrono::milliseconds(1);
// `kEagerBytes`: the largest number of bytes of eager data of one link in one direction. The other
// end keeps the data until it has posted the operation. `kEagerBytesLarge`: the part of these bytes
// that is allowed for operations that are not one-shot, so that one-shot operations never wait for
// them. This part fills a fast wan path for some tens of milliseconds.
inline constexpr uint64_t kEagerBytes = 10u << 20;
inline constexpr uint64_t kEagerBytesLarge = 8u << 20;
static_assert(kEagerBytesLarge < kEagerBytes);
// An eager chunk counts as at least this many bytes, because the end that keeps it needs at least
// this much memory.
inline constexpr uint64_t kKeptBytesMin = 4096;
// The largest number of lanes of one link. More lanes do not fill a path better, and each lane has
// buffers at both ends.
inline constexpr uint32_t kLanesMax = 64;
using LaneBits = uint64_t;  // a bit for each lane of a link
static_assert(sizeof(LaneBits) * 8 >= kLanesMax);
// The largest number of bytes of one tensor of a collective. Offsets and counts stay far within 64
// bits.
inline constexpr uint64_t kTensorBytesMax = uint64_t{1} << 44;

// The largest number of bytes of incomplete messages that a master keeps, for all its connections
// together. Beyond this limit, the party with the largest number of these bytes loses its
// connection with the largest number. (A party is a run, or all pending connections together.) A
// member reconnects and sends its message again.
inline constexpr size_t kUndecodedBytesMax = large(64u << 20);
// The largest number of unsent bytes that a master keeps, for all its connections together. Beyond
// this limit, a connection is lost by the rule of kUndecodedBytesMax.
inline constexpr size_t kUnsentBytesMax = large(256u << 20);
// The largest number of bytes of messages that a master defers for one run while it recovers the
// members after a restart, or makes a membership durable. The member that exceeds this limit loses
// its connection, reconnects, and sends its messages again.
inline constexpr size_t kHeldBytesMax = large(64u << 20);
// A run that has founded no group ends this long after its last connection has closed.
inline constexpr Duration kFoundersAwayMax = std::chrono::seconds(10);
// A run that has founded no group also ends this long after the join timeout of its founders,
// because they have given up by then.
inline constexpr Duration kFoundersLateMax = std::chrono::seconds(10);
// The largest number of connections to a master with one token.
inline constexpr size_t kConnectionsPerTokenMax = 256;
// The largest number of observers of one master.
inline constexpr size_t kObserversMax = 64;
// The shortest time between two snapshots of a run. Observers that ask in between get the next one
// together, so that a run is described at most five times a second, however many watch it.
inline constexpr Duration kSnapshotIntervalMin = std::chrono::milliseconds(200);
// The largest number of bytes of the parts of a snapshot together. A snapshot of 128 members has
// about 60 KB. A part is a small message, like those that peers get.
inline constexpr size_t kSnapshotBytesMax = 4u << 20;
inline constexpr size_t kSnapshotPartBytesMax = large(64u << 10);
// An observer that has not read its answer after this time loses its connection.
inline constexpr Duration kObserverReadTimeout = std::chrono::seconds(5);
// So does one that asks nothing for this time after its answer.
inline constexpr Duration kObserverIdleMax = std::chrono::minutes(1);
// The limits of a trial of `pccl probe` (section 9). A trial can have more connections than a link
// has lanes, to show whether more connections would carry more data.
inline constexpr uint32_t kTrialStreamsMax = 2 * kLanesMax;
inline constexpr Duration kTrialTimeMin = std::chrono::milliseconds(200);
inline constexpr Duration kTrialTimeMax = std::chrono::minutes(1);
// The largest number of bytes of the description that a probe server gives of its host: six
// settings of the system.
inline constexpr size_t kAboutBytesMax = 4096;
// The longest time in which one optimize_topology measures the links of a group, in milliseconds.
// The training pauses meanwhile. To measure all links of 18 members on three continents takes a
// minute.
inline constexpr uint32_t kProbeBudgetMax = 600'000;
// The lowest limit that may be set for the bytes of a probe in each direction. A probe with fewer
// bytes shows only the start of a connection, and no rate.
inline constexpr uint64_t kProbeBytesMin = 1u << 20;
// The lowest max_bytes of optimize_topology: the bytes that a member sends and receives in one
// probe.
inline constexpr uint64_t kProbesBytesMin = 2 * kProbeBytesMin;
// A pending connection is closed if its hello has not arrived within this time.
inline constexpr Duration kHelloTimeout = std::chrono::seconds(5);
// An attempt to connect to a peer ends after this time, or after half of the peer timeout if that
// is shorter. In this time three SYNs leave: the second one second after the first, and the third
// two seconds later.
inline constexpr Duration kConnectTimeoutMax = std::chrono::seconds(5);
// PCCL_PEER_TIMEOUT: its default, and the range that is accepted.
inline constexpr Duration kPeerTimeoutDefault = std::chrono::seconds(10);
inline constexpr Duration kPeerTimeoutMin = std::chrono::milliseconds(100);
inline constexpr Duration kPeerTimeoutMax = std::chrono::hours(1);
// PCCL_MASTER_TIMEOUT: how long a peer tries to reach its master.
inline constexpr Duration kMasterTimeoutDefault = std::chrono::seconds(60);
// Time without input is counted in ticks of peer_timeout / kTicksPerTimeout. A tick counts only
// after all input is drained, so that a process that was paused does not blame the others when it
// wakes up. The end of a timeout is noticed up to one tick late: at the default, half of a second.
inline constexpr int kTicksPerTimeout = 20;
// A ping leaves after this number of ticks without other traffic.
inline constexpr int kTicksPerPing = 4;
// The longest time until a ping leaves. Firewalls and routers silently forget an idle connection,
// some of them after a minute.
inline constexpr Duration kPingIntervalMax = std::chrono::seconds(15);
// The longest beat. Pings leave at a beat. A tick has one beat, or several if the tick is longer
// than this.
inline constexpr Duration kBeatMax = kPingIntervalMax / 3;
// A link that has received nothing for this number of ticks is down. If this is wrong, it costs
// little, since the link is made anew.
inline constexpr int kTicksPerLinkTimeout = 10;
// A TCP segment with this number of bytes of data passes every path of the internet. Some paths
// drop larger packets (PROTOCOL.md, section 6). Hellos, pings and credits are smaller, so a link
// comes up on such a path, too.
inline constexpr uint32_t kSmallPacketBytes = 536;
// TCP segment sizes, in bytes, for connections to a peer that large packets do not reach. A segment
// of 1200 bytes fits with all headers into a packet of 1280 bytes, the minimum of IPv6; tunnels
// hardly go below it. A segment of 536 bytes fits into the packets that every IPv4 host must
// accept.
inline constexpr std::array<uint32_t, 2> kSegments = {1200, kSmallPacketBytes};
// A link counts as a link without progress if no large packet of it has arrived, and at least this
// number of ticks is between its first large packet and its end. The other end has received nothing
// for ten ticks by then. The smaller number here allows for ticks that are late. With an even
// smaller number, a link that was reset for a different reason could count.
inline constexpr int kTicksWithoutProgress = kTicksPerLinkTimeout / 2;
// A peer counts as out of reach after this number of links without progress in a row, if the last
// link had the smallest segments. The number allows for one link without a limit and one for each
// of kSegments. Each link takes ten ticks, and the rule for dead links takes ten more: together
// about two peer timeouts.
inline constexpr int kLinksWithoutProgressMax = 1 + static_cast<int>(kSegments.size());

}  // namespace pccl::protocol
