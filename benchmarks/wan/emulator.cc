// A wide-area network in one process: hosts are network namespaces, each with a TUN device whose
// other end is here. Packets of a host go through its own uplink and then the path to their
// destination: a rate, a queue that overflows, losses by chance, a delay. IPv4 only.
//
//   emulator < PLAN        runs until its input closes, then prints its counts, as JSON
//
// After "go", these lines change what it does:
//   change FROM TO RATE    of a path
//   trace on               records all packets from now on; "tracing" is the answer
//   trace off FILE         writes them there (trace.h) and forgets them; "traced" is the answer
//
// The plan, one item a line, rates in Mbit/s, times in milliseconds, queues in KiB:
//   host NAMESPACE ADDRESS UPLINK            the I-th such line is host I
//   seed NUMBER                              of all chances; without it: always the same one
//   path FROM TO RATE DELAY QUEUE LOSS FLIPS directed; LOSS is the chance of a packet
//                                            FLIPS: the chance of a bit in the payload of TCP
//   slow FROM TO NUMBER RATE                 of the connections on that path, counted from 1
//   trunk RATE QUEUE                         shared by the paths of the lines that follow
//   cross FROM TO                            one of these paths
//   go                                       "ready" is the answer
//
// How it is fast enough: hosts hand over whole segments of up to 64 KiB (segmentation offload).
// Losses and overflow are decided for each packet of the network's size inside them; the runs that
// survive travel on as segments. Queues are not stored: a packet leaves later by the time that the
// bytes before it take. Only the delay is waited out, in ticks of a millisecond; what one
// connection has in the same tick arrives as one segment, as behind a network card that gathers its
// interrupts.
//
// A flipped bit is one that TCP does not notice: the packet arrives with a right checksum. For each
// of them the report has the milliseconds until the receiver has ended the connection, or null.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "benchmarks/wan/trace.h"

namespace {

using Clock = std::chrono::steady_clock;
using Instant = Clock::time_point;
using Seconds = std::chrono::duration<double>;

constexpr size_t kPacketMax = 65536 + 256;
constexpr size_t kSegmentMax = 65000;
constexpr Clock::duration kTick = std::chrono::milliseconds(1);
// A device is read this often before other devices and due packets have their turn.
constexpr int kReadsPerTurn = 8;
constexpr double kUplinkQueue = 0.05;  // seconds of it
constexpr double kLate = 1e-3;         // seconds after its time: too late for the requested network

// Before each packet of a device: Virtio 1.2, section 5.1.6 (its header is no C++).
struct OffloadHeader {
  uint8_t flags, gso_type;
  uint16_t header_length, gso_size, checksum_start, checksum_offset, buffers;
};
constexpr uint8_t kGsoNone = 0, kGsoTcp4 = 1;
constexpr uint8_t kNeedsChecksum = 1;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "emulator: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

// A rate with a queue before it.
struct Bottleneck {
  double bytes_per_second = 0;
  double queue_bytes = 0;
  Instant free{};  // when all that waits has left

  // Sets the time when these bytes have left if they come at `now`; false if there is no room. No
  // rate: at once.
  bool pass(Instant now, size_t bytes, Instant& left) {
    if (bytes_per_second == 0) return left = now, true;
    const Instant begins = std::max(now, free);
    if (Seconds(begins - now).count() * bytes_per_second > queue_bytes) return false;
    left = free = begins + std::chrono::duration_cast<Clock::duration>(
                               Seconds(static_cast<double>(bytes) / bytes_per_second));
    return true;
  }
};

// A rate that several paths share, and so the threads that carry what their hosts send.
struct Trunk {
  bool pass(Instant now, size_t bytes, Instant& left) {
    const std::lock_guard lock(mutex);
    return rate.pass(now, bytes, left);
  }
  std::mutex mutex;
  Bottleneck rate;
};

// Chooses the bits that arrive flipped, by chance.
class Flips {
 public:
  Flips() = default;
  Flips(double chance, uint64_t seed) : chance_(chance), random_(seed) { advance(); }
  // The place of the next one among these bits, counted from the last one; false: not among them.
  bool next(uint64_t bits, uint64_t& place) {
    if (left_ >= bits) return left_ -= bits, false;
    place = left_;
    advance();
    return true;
  }

 private:
  void advance() {
    if (chance_ > 0)
      left_ = static_cast<uint64_t>(std::exponential_distribution<double>(chance_)(random_));
  }
  double chance_ = 0;
  std::mt19937_64 random_;
  uint64_t left_ = UINT64_MAX;  // bits before the next one
};

struct Path {
  int device = -1;  // of its end
  Bottleneck rate;
  // Bytes per second from now on; the main thread may change it.
  std::shared_ptr<std::atomic<double>> bytes_per_second;
  std::vector<Trunk*> trunks;
  Clock::duration delay{};
  double loss = 0;
  Flips flips;
  // One connection on a slower path, as where a router spreads connections over several.
  uint32_t slow_number = 0;  // 0: none
  Bottleneck slow;
  std::map<uint32_t, uint32_t> numbers;  // of connections, by their ports

  Bottleneck* slow_way(const tcphdr* tcp);
  bool pass_trunks(Instant now, size_t bytes, Instant& left);
};

struct Host {
  int device = -1;
  uint32_t address = 0;
  Bottleneck uplink;
  std::map<uint32_t, Path> paths;  // by destination
};

struct Delivery {
  int device = -1;
  std::vector<uint8_t> bytes;
  size_t header_bytes = 0;  // of IP and TCP
  size_t piece_bytes = 0;
  std::vector<uint64_t> traced = {};  // its numbers in the trace
};

// One direction of a connection: addresses and ports.
using Flow = std::array<uint32_t, 3>;
using Moments = std::vector<std::pair<Flow, Instant>>;

Flow flow_of(const iphdr* ip, const tcphdr* tcp) {
  return {ip->saddr, ip->daddr, uint32_t{tcp->source} << 16 | tcp->dest};
}
Flow opposite(const Flow& flow) { return {flow[1], flow[0], flow[2] << 16 | flow[2] >> 16}; }

// Packets that arrive at the same time, in order.
struct Tick {
  std::vector<Delivery> deliveries;
  std::map<Flow, size_t> last;  // of each flow, in `deliveries`
};

struct Seen {
  uint64_t packets = 0, lost = 0, overflowed = 0, late = 0, delivered = 0, refused = 0;
  Moments flips;  // the directions that had a flipped bit
  Moments ends;   // the directions that ended, in order of time
};

// One packet, or a segment of many, as a device hands it over.
struct Packet {
  OffloadHeader* offload;
  iphdr* ip;
  tcphdr* tcp;  // null: another protocol, in one piece
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
  size_t piece_bytes = 0;  // of payload in each packet
};

// Payload [first, end) of a packet that travels together, and when it passed.
struct Part {
  size_t first = 0, end = 0;
  Instant came{}, sent{}, left{};  // as in TracedPacket
};

// Its checksum, anew.
void seal(iphdr* ip) {
  uint32_t sum = 0;
  ip->check = 0;
  const auto* const words = reinterpret_cast<const uint16_t*>(ip);
  for (size_t i = 0; i < ip->ihl * 2u; ++i) sum += words[i];
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  ip->check = static_cast<uint16_t>(~sum);
}

// All hosts. A carrier owns the uplinks and paths of the hosts that it serves.
class Network {
 public:
  void add_host(const std::string& name_space, const std::string& address, double uplink_mbit);
  void add_path(size_t from, size_t to, double mbit, double delay_ms, double queue_kib, double loss,
                double flips);
  void change(size_t from, size_t to, double mbit);  // the rate of a path, at any time
  void slow_down(size_t from, size_t to, uint32_t number, double mbit);
  void add_trunk(double mbit, double queue_kib);
  void cross(size_t from, size_t to);  // the last trunk
  std::vector<Host> hosts;
  std::vector<std::unique_ptr<Trunk>> trunks;
  uint64_t seed = 20260101;
};

// Carries what some of the hosts send, in a thread of its own.
class Carrier {
 public:
  Carrier(Network& network, size_t first, size_t stride)
      : network_(network), first_(first), stride_(stride), random_(network.seed + first) {}
  void run(const std::atomic<bool>& stopped);
  const Seen& seen() const { return seen_; }
  wan::Trace& trace() { return trace_; }

 private:
  static bool parse(std::vector<uint8_t>& buffer, size_t bytes, Packet& packet);
  bool read_one(Host& host);
  void carry(Host& from, const Packet& packet);
  void forward(const Packet& packet, const Part& part, Path& path);
  uint64_t record(const Packet& packet, const Part& part);
  void flip(Delivery& delivery, Flips& flips, const Flow& flow);
  static bool append(Delivery& before, const Delivery& next);
  void deliver_due();

  Network& network_;
  const size_t first_, stride_;
  std::map<Instant, Tick> under_way_;
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(kPacketMax);
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> chance_{0.0, 1.0};
  Seen seen_;
  wan::Trace trace_;
};

// ---- Set-up ----

void Network::add_host(const std::string& name_space, const std::string& address,
                       double uplink_mbit) {
  const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = open(name_space.c_str(), O_RDONLY | O_CLOEXEC);
  if (there < 0 || setns(there, CLONE_NEWNET) != 0) die(name_space);
  Host host;
  host.device = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (host.device < 0) die("/dev/net/tun");
  ifreq request{};
  std::strcpy(request.ifr_name, "wan0");
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(host.device, TUNSETIFF, &request) != 0) die("TUNSETIFF");
  const int header_bytes = sizeof(OffloadHeader);
  if (ioctl(host.device, TUNSETVNETHDRSZ, &header_bytes) != 0) die("TUNSETVNETHDRSZ");
  if (ioctl(host.device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0) die("TUNSETOFFLOAD");
  if (setns(home, CLONE_NEWNET) != 0) die("back");
  close(home);
  close(there);
  host.address = inet_addr(address.c_str());
  host.uplink = {uplink_mbit * 125e3, uplink_mbit * 125e3 * kUplinkQueue};
  hosts.push_back(std::move(host));
}

void Network::add_path(size_t from, size_t to, double mbit, double delay_ms, double queue_kib,
                       double loss, double flips) {
  if (from >= hosts.size() || to >= hosts.size()) die("a path of an unknown host");
  Path path;
  path.device = hosts[to].device;
  path.rate = {mbit * 125e3, queue_kib * 1024};
  path.bytes_per_second = std::make_shared<std::atomic<double>>(mbit * 125e3);
  path.delay = std::chrono::duration_cast<Clock::duration>(Seconds(delay_ms / 1e3));
  path.loss = loss;
  path.flips = {flips, seed + 1000 * from + to};
  hosts[from].paths[hosts[to].address] = path;
}

void Network::change(size_t from, size_t to, double mbit) {
  if (from >= hosts.size() || to >= hosts.size() || mbit <= 0) die("a change of nothing");
  hosts[from].paths.at(hosts[to].address).bytes_per_second->store(mbit * 125e3);
}

void Network::slow_down(size_t from, size_t to, uint32_t number, double mbit) {
  if (from >= hosts.size() || to >= hosts.size() || number == 0) die("a connection of nobody");
  Path& path = hosts[from].paths[hosts[to].address];
  path.slow_number = number;
  path.slow = {mbit * 125e3, mbit * 125e3 * kUplinkQueue};
}

void Network::add_trunk(double mbit, double queue_kib) {
  trunks.push_back(std::make_unique<Trunk>());
  trunks.back()->rate = {mbit * 125e3, queue_kib * 1024};
}

void Network::cross(size_t from, size_t to) {
  if (from >= hosts.size() || to >= hosts.size() || trunks.empty()) die("a trunk of nobody");
  hosts[from].paths[hosts[to].address].trunks.push_back(trunks.back().get());
}

// ---- Packets ----

// The path of its own, if this is the slow connection. They count from their first packet on.
Bottleneck* Path::slow_way(const tcphdr* tcp) {
  if (slow_number == 0 || tcp == nullptr) return nullptr;
  const uint32_t ports = uint32_t{tcp->source} << 16 | tcp->dest;
  if (tcp->syn) numbers.try_emplace(ports, static_cast<uint32_t>(numbers.size()) + 1);
  const auto found = numbers.find(ports);
  return found != numbers.end() && found->second == slow_number ? &slow : nullptr;
}

bool Path::pass_trunks(Instant now, size_t bytes, Instant& left) {
  left = now;
  return std::all_of(trunks.begin(), trunks.end(),
                     [&](Trunk* trunk) { return trunk->pass(left, bytes, left); });
}

bool Carrier::parse(std::vector<uint8_t>& buffer, size_t bytes, Packet& packet) {
  constexpr size_t kBefore = sizeof(OffloadHeader);
  if (bytes < kBefore + sizeof(iphdr)) return false;
  packet.offload = reinterpret_cast<OffloadHeader*>(buffer.data());
  packet.ip = reinterpret_cast<iphdr*>(buffer.data() + kBefore);
  if (packet.ip->version != 4) return false;
  const size_t length = bytes - kBefore;
  packet.header_bytes = packet.ip->ihl * 4u;
  packet.tcp = nullptr;
  if (packet.ip->protocol == IPPROTO_TCP) {
    packet.tcp = reinterpret_cast<tcphdr*>(buffer.data() + kBefore + packet.header_bytes);
    packet.header_bytes += packet.tcp->doff * 4u;
  }
  if (packet.header_bytes > length) return false;
  packet.payload_bytes = length - packet.header_bytes;
  const bool many = packet.tcp != nullptr && packet.offload->gso_type == kGsoTcp4;
  packet.piece_bytes = many ? packet.offload->gso_size : std::max<size_t>(packet.payload_bytes, 1);
  return true;
}

bool Carrier::read_one(Host& host) {
  const ssize_t bytes = read(host.device, buffer_.data(), buffer_.size());
  if (bytes <= 0) return false;
  Packet packet;
  if (parse(buffer_, static_cast<size_t>(bytes), packet)) carry(host, packet);
  return true;
}

// Decides for each packet in it, and passes on the runs that survive.
void Carrier::carry(Host& from, const Packet& packet) {
  const auto found = from.paths.find(packet.ip->daddr);
  if (found == from.paths.end()) return;
  Path& path = found->second;
  path.rate.bytes_per_second = path.bytes_per_second->load();
  Bottleneck* const slow = path.slow_way(packet.tcp);
  Part part{.came = Clock::now()};  // the next one that travels together
  do {
    const size_t piece = std::min(packet.piece_bytes, packet.payload_bytes - part.end);
    const size_t bytes = packet.header_bytes + piece;
    ++seen_.packets;
    Instant sent{}, out{};
    const bool fits = from.uplink.pass(part.came, bytes, sent) &&
                      path.pass_trunks(sent, bytes, out) && path.rate.pass(out, bytes, out) &&
                      (slow == nullptr || slow->pass(out, bytes, out));
    const bool lost = fits && chance_(random_) < path.loss;
    seen_.overflowed += !fits;
    seen_.lost += lost;
    if (fits) std::tie(part.sent, part.left) = std::tie(sent, out);
    if (!fits || lost) {
      if (part.end > part.first) forward(packet, part, path);
      part.first = part.end + piece;
      if (trace_.on() && piece > 0) record(packet, {part.end, part.first, part.came, sent, out});
    }
    part.end += piece;
  } while (part.end < packet.payload_bytes);
  if (part.end > part.first || packet.payload_bytes == 0) forward(packet, part, path);
}

// Returns its number in the trace. It counts as lost until it has arrived.
uint64_t Carrier::record(const Packet& packet, const Part& part) {
  const auto nanoseconds = [](Instant when) {
    return std::chrono::nanoseconds(when.time_since_epoch()).count();
  };
  wan::TracedPacket traced{.came = nanoseconds(part.came),
                           .sent = nanoseconds(part.sent),
                           .left = nanoseconds(part.left),
                           .from = packet.ip->saddr,
                           .to = packet.ip->daddr,
                           .bytes = static_cast<uint32_t>(part.end - part.first)};
  const size_t pieces =
      std::max<size_t>(1, (traced.bytes + packet.piece_bytes - 1) / packet.piece_bytes);
  traced.wire_bytes = static_cast<uint32_t>(traced.bytes + pieces * packet.header_bytes);
  if (packet.tcp != nullptr) {
    traced.source = ntohs(packet.tcp->source);
    traced.destination = ntohs(packet.tcp->dest);
    traced.sequence = ntohl(packet.tcp->seq) + static_cast<uint32_t>(part.first);
    traced.acknowledged = ntohl(packet.tcp->ack_seq);
    traced.flags = packet.tcp->syn ? wan::kSyn : 0;
  }
  const auto* const start = reinterpret_cast<const uint8_t*>(packet.ip);
  return trace_.add(traced, start + packet.header_bytes + part.first);
}

// The payload of this part, with the headers that it would have had.
void Carrier::forward(const Packet& packet, const Part& part, Path& path) {
  const auto [first, end] = std::pair(part.first, part.end);
  const Instant due = part.left + path.delay;
  constexpr size_t kBefore = sizeof(OffloadHeader);
  const size_t bytes = end - first;
  Delivery delivery{path.device, {}, packet.header_bytes, packet.piece_bytes};
  const auto* const start = reinterpret_cast<const uint8_t*>(packet.offload);
  delivery.bytes.reserve(kBefore + packet.header_bytes + bytes);
  delivery.bytes.assign(start, start + kBefore + packet.header_bytes);
  const uint8_t* const payload = start + kBefore + packet.header_bytes;
  delivery.bytes.insert(delivery.bytes.end(), payload + first, payload + end);
  if (trace_.on()) delivery.traced = {record(packet, part)};
  auto* const offload = reinterpret_cast<OffloadHeader*>(delivery.bytes.data());
  auto* const ip = reinterpret_cast<iphdr*>(delivery.bytes.data() + kBefore);
  if (packet.tcp != nullptr && bytes < packet.payload_bytes) {
    ip->tot_len = htons(static_cast<uint16_t>(packet.header_bytes + bytes));
    ip->id = htons(static_cast<uint16_t>(ntohs(ip->id) + first / packet.piece_bytes));
    seal(ip);
    auto* const tcp = reinterpret_cast<tcphdr*>(reinterpret_cast<uint8_t*>(ip) + ip->ihl * 4u);
    tcp->seq = htonl(ntohl(tcp->seq) + static_cast<uint32_t>(first));
    if (end < packet.payload_bytes) tcp->psh = tcp->fin = 0;
    if (bytes <= packet.piece_bytes) {
      offload->gso_type = kGsoNone;
      offload->gso_size = 0;
    }
  }
  // Between two devices of one machine a checksum that is still to be made is as good as right.
  Tick& tick =
      under_way_[Instant((due.time_since_epoch() + kTick - Clock::duration(1)) / kTick * kTick)];
  if (packet.tcp != nullptr) {
    const Flow flow = flow_of(packet.ip, packet.tcp);
    flip(delivery, path.flips, flow);
    if (packet.tcp->fin || packet.tcp->rst) seen_.ends.emplace_back(flow, Clock::now());
    const auto [last, added] = tick.last.try_emplace(flow, 0);
    if (!added && append(tick.deliveries[last->second], delivery)) {
      auto& traced = tick.deliveries[last->second].traced;
      traced.insert(traced.end(), delivery.traced.begin(), delivery.traced.end());
      return;
    }
    last->second = tick.deliveries.size();
  }
  tick.deliveries.push_back(std::move(delivery));
}

// Flips bits of its payload. If the header marks a checksum as not yet computed, the receiver
// accepts it.
void Carrier::flip(Delivery& delivery, Flips& flips, const Flow& flow) {
  uint8_t* const ip = delivery.bytes.data() + sizeof(OffloadHeader);
  uint64_t begin = 8 * delivery.header_bytes;
  const uint64_t end = 8 * (delivery.bytes.size() - sizeof(OffloadHeader));
  for (uint64_t place = 0; flips.next(end - begin, place); begin += place + 1) {
    const uint64_t at = begin + place;
    ip[at / 8] ^= static_cast<uint8_t>(1u << at % 8);
    auto* const offload = reinterpret_cast<OffloadHeader*>(delivery.bytes.data());
    offload->flags |= kNeedsChecksum;
    offload->checksum_start = static_cast<uint16_t>(reinterpret_cast<const iphdr*>(ip)->ihl * 4);
    offload->checksum_offset = offsetof(tcphdr, check);
    seen_.flips.emplace_back(flow, Clock::now());
  }
}

// Makes one segment of two that follow each other; false if they must stay apart.
bool Carrier::append(Delivery& before, const Delivery& next) {
  constexpr size_t kBefore = sizeof(OffloadHeader);
  auto* const ip = reinterpret_cast<iphdr*>(before.bytes.data() + kBefore);
  auto* const tcp = reinterpret_cast<tcphdr*>(reinterpret_cast<uint8_t*>(ip) + ip->ihl * 4u);
  const auto* const next_ip = reinterpret_cast<const iphdr*>(next.bytes.data() + kBefore);
  const auto* const next_tcp = reinterpret_cast<const tcphdr*>(
      reinterpret_cast<const uint8_t*>(next_ip) + next_ip->ihl * 4u);
  const auto is_plain = [](const tcphdr& header) {
    return header.doff == 8 && header.ack && !header.syn && !header.fin && !header.rst &&
           !header.urg && !header.res2;
  };
  if (!is_plain(*tcp) || !is_plain(*next_tcp)) return false;
  const size_t payload = before.bytes.size() - kBefore - before.header_bytes;
  const size_t more = next.bytes.size() - kBefore - next.header_bytes;
  if (payload == 0 && more == 0) {  // acknowledgements: the later one covers both
    const auto ahead = static_cast<int32_t>(ntohl(next_tcp->ack_seq) - ntohl(tcp->ack_seq));
    if (ahead > 0) before.bytes = next.bytes;
    return ahead > 0;
  }
  auto* const offload = reinterpret_cast<OffloadHeader*>(before.bytes.data());
  const auto* const next_offload = reinterpret_cast<const OffloadHeader*>(next.bytes.data());
  const bool unsealed = (offload->flags & next_offload->flags & kNeedsChecksum) != 0;
  const bool follows = unsealed && payload > 0 && more > 0 && payload % before.piece_bytes == 0 &&
                       ntohl(tcp->seq) + payload == ntohl(next_tcp->seq) &&
                       payload + more <= kSegmentMax;
  const bool alike = next.piece_bytes == before.piece_bytes || more <= before.piece_bytes;
  if (!follows || !alike) return false;
  const uint32_t sequence = tcp->seq;
  std::memcpy(tcp, next_tcp, tcp->doff * 4u);
  tcp->seq = sequence;
  ip->tot_len = htons(static_cast<uint16_t>(before.header_bytes + payload + more));
  seal(ip);
  offload->gso_type = kGsoTcp4;
  offload->gso_size = static_cast<uint16_t>(before.piece_bytes);
  offload->header_length = static_cast<uint16_t>(before.header_bytes);
  const uint8_t* const data = next.bytes.data() + kBefore + next.header_bytes;
  before.bytes.insert(before.bytes.end(), data, data + more);
  return true;
}

void Carrier::deliver_due() {
  while (!under_way_.empty() && under_way_.begin()->first <= Clock::now()) {
    const auto tick = under_way_.extract(under_way_.begin());
    for (const Delivery& next : tick.mapped().deliveries) {
      seen_.late += Seconds(Clock::now() - tick.key()).count() > kLate;
      const ssize_t wrote = write(next.device, next.bytes.data(), next.bytes.size());
      ++(wrote < 0 ? seen_.refused : seen_.delivered);
      const std::chrono::nanoseconds now = Clock::now().time_since_epoch();
      for (const uint64_t number : next.traced) trace_.arrived(number, now.count());
    }
  }
}

// ---- The loop ----

void Carrier::run(const std::atomic<bool>& stopped) {
  const sched_param priority{.sched_priority = 10};
  if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0) die("real-time priority");
  const int poll = epoll_create1(EPOLL_CLOEXEC);
  for (size_t i = first_; i < network_.hosts.size(); i += stride_) {
    epoll_event event{EPOLLIN, {.u64 = i}};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, network_.hosts[i].device, &event) != 0) die("epoll_ctl");
  }
  std::array<epoll_event, 64> events;
  while (!stopped) {
    timespec wait{0, 10'000'000};
    if (!under_way_.empty()) {
      const auto left = std::max(Clock::duration::zero(), under_way_.begin()->first - Clock::now());
      const auto nanoseconds = std::chrono::nanoseconds(left).count();
      if (nanoseconds < wait.tv_nsec) wait.tv_nsec = nanoseconds;
    }
    const int count = epoll_pwait2(poll, events.data(), events.size(), &wait, nullptr);
    for (int i = 0; i < count; ++i) {
      Host& host = network_.hosts[events[i].data.u64];
      for (int reads = 0; reads < kReadsPerTurn && read_one(host); ++reads) {
      }
      deliver_due();
    }
    deliver_due();
  }
}

// For each flipped bit, the milliseconds until its receiver has ended the connection, or null.
std::string ends_after(const Moments& flips, const Moments& ends) {
  std::string all;
  for (const auto& [flow, flipped] : flips) {
    const auto end = std::find_if(ends.begin(), ends.end(), [&](const auto& one) {
      return one.first == opposite(flow) && one.second >= flipped;
    });
    all += all.empty() ? "" : ", ";
    all +=
        end == ends.end() ? "null" : std::to_string(Seconds(end->second - flipped).count() * 1e3);
  }
  return all;
}

void report(const std::vector<std::unique_ptr<Carrier>>& carriers, Instant started) {
  Seen sum;
  for (const auto& carrier : carriers) {
    const Seen& seen = carrier->seen();
    sum.packets += seen.packets;
    sum.lost += seen.lost;
    sum.overflowed += seen.overflowed;
    sum.late += seen.late;
    sum.delivered += seen.delivered;
    sum.refused += seen.refused;
    sum.flips.insert(sum.flips.end(), seen.flips.begin(), seen.flips.end());
    sum.ends.insert(sum.ends.end(), seen.ends.begin(), seen.ends.end());
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return t.tv_sec + t.tv_usec / 1e6; };
  const double wall = Seconds(Clock::now() - started).count();
  const double cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  std::printf(
      "{\"wall\": %.3f, \"cpu\": %.3f, \"packets\": %lu, \"lost\": %lu, \"overflowed\": %lu, "
      "\"delivered\": %lu, \"late\": %lu, \"refused\": %lu, \"threads\": %zu, "
      "\"flips\": [%s]}\n",
      wall, cpu, sum.packets, sum.lost, sum.overflowed, sum.delivered, sum.late, sum.refused,
      carriers.size(), ends_after(sum.flips, sum.ends).c_str());
  std::fflush(stdout);
}

// Does what a line of the input wants; false: it is no such line.
bool obey(const std::string& line, Network& network,
          const std::vector<std::unique_ptr<Carrier>>& carriers) {
  std::istringstream words(line);
  std::string what, how, file;
  size_t from = 0, to = 0;
  double mbit = 0;
  words >> what;
  if (what == "change" && words >> from >> to >> mbit) return network.change(from, to, mbit), true;
  if (what != "trace" || !(words >> how)) return false;
  if (how == "on") {
    for (const auto& carrier : carriers) carrier->trace().start();
    std::printf("tracing\n");
  } else if (how == "off" && words >> file) {
    for (const auto& carrier : carriers) carrier->trace().end();
    std::ofstream out(file, std::ios::binary);
    for (const auto& carrier : carriers) carrier->trace().write(out);
    if (!out.flush()) die(file);
    std::printf("traced\n");
  } else {
    return false;
  }
  std::fflush(stdout);
  return true;
}

// Until the input closes.
void carry_all(Network& network) {
  const Instant started = Clock::now();
  std::atomic<bool> stopped = false;
  std::vector<std::unique_ptr<Carrier>> carriers;
  std::vector<std::thread> threads;
  const size_t count = std::min<size_t>(std::thread::hardware_concurrency(), network.hosts.size());
  for (size_t i = 0; i < count; ++i)
    carriers.push_back(std::make_unique<Carrier>(network, i, count));
  for (const auto& carrier : carriers)
    threads.emplace_back([&stopped, own = carrier.get()] { own->run(stopped); });
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    if (obey(line, network, carriers)) continue;
    errno = EINVAL;
    die(line);
  }
  stopped = true;
  for (std::thread& thread : threads) thread.join();
  report(carriers, started);
}

}  // namespace

int main() {
  Network network;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string what, name_space, address;
    words >> what;
    size_t from = 0, to = 0;
    uint32_t number = 0;
    double mbit = 0, delay_ms = 0, queue_kib = 0, loss = 0, flips = 0;
    if (what == "host" && words >> name_space >> address >> mbit) {
      network.add_host(name_space, address, mbit);
    } else if (what == "seed" && words >> network.seed) {
      continue;
    } else if (what == "path" &&
               words >> from >> to >> mbit >> delay_ms >> queue_kib >> loss >> flips) {
      network.add_path(from, to, mbit, delay_ms, queue_kib, loss, flips);
    } else if (what == "slow" && words >> from >> to >> number >> mbit) {
      network.slow_down(from, to, number, mbit);
    } else if (what == "trunk" && words >> mbit >> queue_kib) {
      network.add_trunk(mbit, queue_kib);
    } else if (what == "cross" && words >> from >> to) {
      network.cross(from, to);
    } else if (what == "go") {
      carry_all(network);
      return 0;
    } else {
      errno = EINVAL;
      die(line);
    }
  }
}
