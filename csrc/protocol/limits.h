// Every maximum of the protocol, each with its reason. A sender stays inside them by construction;
// a receiver that sees more closes the connection. They bound what a hostile byte stream can make a
// process allocate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "csrc/base/clock.h"

namespace pccl::protocol {

// Marks the limits of everything that grows with the number of messages. The targets of tests/fuzz
// are built with a thousandth of these limits, so that a short input can exceed them. Their order
// by size stays the same.
constexpr size_t large(size_t limit) {
#ifdef PCCL_FUZZ_LIMITS
  return limit / 1000;
#else
  return limit;
#endif
}

// One control message. The largest honest one is an Offer of kStateKeysMax keys with short names
// (about 6 MiB).
inline constexpr size_t kMessageBytesMax = large(16u << 20);
// Names chosen by people (run, tag, key, host, error text): longer ones are refused where they are
// typed.
inline constexpr size_t kRunNameBytesMax = 128;
inline constexpr size_t kTagBytesMax = 256;
inline constexpr size_t kLaunchBytesMax = 256;  // made of names of hosts and of launchers
inline constexpr size_t kStateKeyBytesMax = 512;
inline constexpr size_t kHostBytesMax = 255;  // RFC 1035: a domain name
// Further addresses of a peer, beside the one where it is looked for first.
inline constexpr size_t kOtherAddressesMax = 7;
inline constexpr size_t kNumericHostBytesMax = 45;  // an IPv6 address that contains an IPv4 one
// Texts in messages are cut to this, so that an error never grows with the number of peers.
inline constexpr size_t kTextBytesMax = 4096;
// Members of one peer group: each keeps a link to every other, and a report lists all of them.
inline constexpr size_t kMembersMax = 128;
// Peer groups of one run, those included of which only the shared state is left: a machine has one
// for each of its processes.
inline constexpr size_t kGroupsMax = 1024;
// Peer groups that an answer names as settled together. It names each of its run at most once; if
// an older journal has brought more than a run may have, the master names none.
inline constexpr size_t kGroupsNamedMax = kGroupsMax;
// Runs with connected peers that one master serves; each costs a few KiB when idle.
inline constexpr size_t kRunsMax = 1024;
// Founded runs whose peers are all away and expected back: beyond it the network that has most
// gives up its oldest.
inline constexpr size_t kRunsAwayMax = 4096;
// Runs that a master knows, finished ones included, of all networks and of one. A finished run is
// a line of some hundred bytes in memory and in the journal; it counts once for every
// kStatesPerLine shared states that it agreed on, so that the size of all lines has a bound too.
inline constexpr size_t kRunsKnownMax = 65536;
inline constexpr size_t kRunsPerNetworkMax = 1024;
inline constexpr size_t kStatesPerLine = 8;
// Entries of a shared state: a large model has some thousands of tensors.
inline constexpr size_t kStateKeysMax = large(65536);
// Operations a peer has posted and not seen settled: beyond it posting fails with
// InvalidStateError.
inline constexpr size_t kOpsOpenMax = large(65536);
// Operations of a group that are open, and verdicts on earlier ones that not all members have
// acknowledged, together: a place in the list of verdicts is reserved when an operation begins, so
// that whatever ends, however many at once, what is said of it fits. That bounds the lists of an
// EpochEnd (12 and 20 bytes an entry: 4 MiB) and of an epoch in the journal. A peer that has posted
// kOpsOpenMax stays below it; a group that is beyond it ends its run.
inline constexpr size_t kVerdictsMax = 2 * kOpsOpenMax;
// The texts of those verdicts, together; beyond that they are left out. A peer brings at most
// kOpsOpenMax verdicts back in its Resume, which has room for 16 MiB: operations and their tags
// take 9, verdicts without their texts 3.
inline constexpr size_t kVerdictTextBytesMax = large(2u << 20);
// Operations of a group that the master knows, settled ones that some member has yet to call
// included. Beyond it the run ends.
inline constexpr size_t kOpsKnownMax = 4 * kOpsOpenMax;
// Ranks named one by one in an error text before it says "and N more".
inline constexpr size_t kRanksNamedMax = 8;

// A lane frame's header and trailer have one size each (PROTOCOL.md, section 6).
inline constexpr size_t kFrameHeaderBytes = 64;
inline constexpr size_t kFrameTrailerBytes = 8;
// Payload of one chunk. Larger ones would leave the cache before they are reduced.
inline constexpr size_t kChunkBytesMax = 4u << 20;
// All-reduces up to this size may be exchanged (section 6), by so many members: each keeps the
// tensors of all others, and sends its own as often.
inline constexpr uint32_t kExchangeBytesMax = 64u << 10;
inline constexpr size_t kExchangeMembersMax = 32;
// A round trip from which on a way is long: it has several lanes, which pace what they send, and
// carries smaller chunks of which more are under way.
inline constexpr Duration kLongWay = std::chrono::milliseconds(1);
// What may leave on a long way before it is asked for: the other end of the link keeps it. Some
// tens of milliseconds of a fast path.
inline constexpr uint64_t kHeadStartBytes = 8u << 20;
// What is kept for a neighbour, a copy or a chunk, counts as the memory that it takes at least.
inline constexpr uint64_t kKeptBytesMin = 4096;
// Lanes of one link: more do not fill a path better, and each has buffers at both ends.
inline constexpr uint32_t kLanesMax = 64;
using LaneBits = uint64_t;  // a bit for each lane of a link
static_assert(sizeof(LaneBits) * 8 >= kLanesMax);
// One tensor of a collective: offsets and counts stay far inside 64 bits.
inline constexpr uint64_t kTensorBytesMax = uint64_t{1} << 44;

// A master keeps at most so many bytes of incomplete messages, for all its connections together.
// Beyond it the party that has most (a run, or all strangers) loses its largest connection. A
// member reconnects and sends its message again.
inline constexpr size_t kUndecodedBytesMax = large(64u << 20);
// A master keeps at most so many unsent bytes, for all its connections together. The same rule
// says who loses a connection.
inline constexpr size_t kUnsentBytesMax = large(256u << 20);
// A master puts off messages of a run while it gathers the members after a restart, or makes a
// membership durable. It keeps at most so many bytes of them. The member that exceeds this loses
// its connection, reconnects, and sends its messages again.
inline constexpr size_t kHeldBytesMax = large(64u << 20);
// A run that has founded nothing ends so long after its last connection has closed,
inline constexpr Duration kFoundersAwayMax = std::chrono::seconds(10);
// and so long after its founders have waited as long as they said: by then they have given up.
inline constexpr Duration kFoundersLateMax = std::chrono::seconds(10);
// A connection that has not introduced itself by then is closed.
inline constexpr Duration kHelloTimeout = std::chrono::seconds(5);
// An attempt to connect to a peer ends after this, or after half of the peer timeout if that is
// shorter: three SYNs that had no answer, a second and two seconds after each other.
inline constexpr Duration kConnectTimeoutMax = std::chrono::seconds(5);
// PCCL_PEER_TIMEOUT, the one user-facing time: its default and what is accepted.
inline constexpr Duration kPeerTimeoutDefault = std::chrono::seconds(10);
inline constexpr Duration kPeerTimeoutMin = std::chrono::milliseconds(100);
inline constexpr Duration kPeerTimeoutMax = std::chrono::hours(1);
// PCCL_MASTER_TIMEOUT: how long a peer goes on looking for its master.
inline constexpr Duration kMasterTimeoutDefault = std::chrono::seconds(60);
// Silence is counted in ticks of peer_timeout / kTicksPerTimeout, each after all input is drained,
// so that a process that was stopped for a while does not blame the others when it wakes up. By as
// much as a tick it is noticed late: at the default that is half of a second.
inline constexpr int kTicksPerTimeout = 20;
// A ping goes out after this many ticks without other traffic,
inline constexpr int kTicksPerPing = 4;
// and after so long at most: firewalls and routers forget an idle connection, some of them after a
// minute, and say nothing.
inline constexpr Duration kPingIntervalMax = std::chrono::seconds(15);
// Pings go out at a beat. A tick has one beat, or several if the tick is longer than this.
inline constexpr Duration kBeatMax = kPingIntervalMax / 3;
// A link that was silent for so long is down: a suspicion that costs little, since it is made anew.
inline constexpr int kTicksPerLinkSilence = 10;
// A packet that is larger than this may be what a narrow path drops: every path of the internet
// carries so much, and hellos, pings and credits are smaller.
inline constexpr uint32_t kSmallPacketBytes = 536;
// Segments of connections to a peer that large packets do not reach. 1200 bytes and all headers fit
// into 1280, the least of IPv6, below which tunnels hardly go; 536 are what every host of IPv4 has
// to take.
inline constexpr std::array<uint32_t, 2> kSegments = {1200, kSmallPacketBytes};
// A link that ends after its first large packet was on its way for so many ticks, and none has
// arrived, had no progress. Its other end has heard nothing for ten ticks by then. The difference
// allows for ticks that are late; less could be a link that was reset for another reason.
inline constexpr int kTicksWithoutProgress = kTicksPerLinkSilence / 2;
// After so many such links in a row, the last with the smallest segments, a peer counts as out of
// reach: one for each size. Each takes ten ticks, and the rule for dead links ten more: at the
// default 20 s, and a minute at most.
inline constexpr int kLinksWithoutProgressMax = 1 + static_cast<int>(kSegments.size());

}  // namespace pccl::protocol
