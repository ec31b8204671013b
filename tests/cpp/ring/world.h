// World: Engines in one thread, for tests. Real frames travel between them as real bytes, on one to
// three lanes per link, in pieces of random size and with random delays. World checks what Engines
// promise:
// 1. After OpDrained no link touches the memory of an operation.
// 2. An aborted operation leaves its memory as it was before.
// Ranks are ring indices; the peer of rank r has the id r + 1.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/net/framing.h"
#include "csrc/protocol/shares.h"
#include "csrc/ring/engine.h"
#include "csrc/ring/schedule.h"
#include "tests/cpp/ring/handlers.h"

namespace pccl::ring {

using Bytes = std::vector<std::byte>;

// How many random runs a test makes. Under a sanitizer each run takes ten times as long, and a
// quarter of the runs find the same wrong accesses.
#ifdef PCCL_SANITIZED
constexpr uint64_t kRunsDivisor = 4;
#else
constexpr uint64_t kRunsDivisor = 1;
#endif
constexpr uint64_t runs(uint64_t count) { return (count + kRunsDivisor - 1) / kRunsDivisor; }

// A collective as all members of a world call it.
struct Call {
  OpKey key;
  Pattern pattern = Pattern::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  uint64_t count = 0;  // see Shape
  uint32_t root = 0;   // of a kBroadcast or kReduce; source of a kTransfer to the next rank
  std::vector<uint64_t> block_bytes;  // kTransfer
  uint64_t digest = 7;
  bool keep = false;
  bool save = true;
  float scale = 1;  // of the values; with 1 all sums are exact
  // Elements that pass from one rank to another, for kOneShotExchange and kExchange, and for a
  // kOneShot that is not in place. `count` is the largest.
  std::function<uint64_t(uint32_t from, uint32_t to)> part = {};
  std::vector<uint16_t> shares = {};  // kDirect; none: equal ones
  WireFormat format = {};             // kAllReduce, kPairwise, kDirect
  // Its task on a rank, for an all-reduce; the World fills in epoch, key and digest. None: the
  // World makes the task.
  std::function<Task(uint32_t rank)> task = {};
  std::vector<bool> absent = {};  // by rank; none: nobody is
  bool into_input = false;        // a reduce-scatter whose result is in the block of its rank
};

// The state of a call on one rank.
struct Posted {
  Call call;
  std::vector<Bytes> memory;  // what the operation writes
  std::vector<Bytes> before;
  std::vector<Bytes> inputs;  // unless it is in place
  int transferred = 0;
  int drained = 0;
  int failed = 0;
  bool committed = false;
  uint64_t finished = 0;         // elements that OpProgressed reported of the last post
  uint64_t kept = 0;             // elements that again() has kept
  bool again = false;            // again() was called, and OpDrained has not come yet
  protocol::AbsentRanks absent;  // that were told last
};

class World {
 public:
  // `lanes`: of each link; 0: one to three.
  World(uint32_t size, uint64_t seed, size_t piece_bytes_max = 40000, uint64_t lanes = 0)
      : random(seed), piece_bytes_max_(piece_bytes_max), nodes_(size) {
    for (uint32_t rank = 0; rank < size; ++rank) {
      nodes_[rank].engine = std::make_unique<Engine>(Engine::Callbacks{
          .on_event = handlers(
              [this, rank](const OpTransferred& event) {
                ++at(rank, event.op).transferred;
                at(rank, event.op).absent = event.absent;
              },
              [this, rank](const OpProgressed& event) {
                Posted& posted = at(rank, event.op);
                EXPECT_GT(event.finished, std::exchange(posted.finished, event.finished));
                posted.absent = event.absent;
              },
              [this, rank](const OpDrained& event) { drained(rank, event.op); },
              [this, rank](const OpFailed& event) { ++at(rank, event.op).failed; }),
          .on_fail_link = [this](PeerId, const std::string& why) { failures.push_back(why); }});
    }
    for (uint32_t a = 0; a < size; ++a) {
      for (uint32_t b = a + 1; b < size; ++b) {
        const uint64_t count = lanes > 0 ? lanes : 1 + random() % 3;
        lanes_[{a, b}] = lanes_[{b, a}] = count;
        for (uint64_t lane = 0; lane < count; ++lane) connect(a, b);
      }
    }
    begin_epoch(Epoch{1});
  }

  ~World() {
    for (const Node& node : nodes_) {
      for (const auto& [key, posted] : node.calls) {
        if (posted.drained == 0) continue;
        for (const Bytes& bytes : posted.memory) {
          EXPECT_TRUE(bytes == Bytes(bytes.size(), kGivenBack))
              << "touched after it was given back";
        }
      }
    }
  }

  // Of random bits.
  static uint64_t key_of(uint32_t rank) { return 0xabcdef'00000000u + rank; }
  static uint64_t partial_key_of(uint32_t rank) { return 0x123456'00000000u + rank; }
  static constexpr uint64_t kResultKey = 77;

  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  Engine& engine(uint32_t rank) { return *nodes_[rank].engine; }
  Posted& at(uint32_t rank, OpKey op) { return nodes_[rank].calls.at(op); }
  // The memory when OpDrained came: the result, or the restored values.
  const std::vector<Bytes>& result(uint32_t rank, OpKey op) { return nodes_[rank].results.at(op); }

  void begin_epoch(Epoch epoch) {
    for (uint32_t rank = 0; rank < size(); ++rank) begin_epoch(rank, epoch);
  }
  void begin_epoch(uint32_t rank, Epoch epoch) {
    nodes_[rank].calls.clear();
    nodes_[rank].results.clear();
    renew(rank, epoch);
  }
  // Calls that were posted before may be posted again.
  void renew(uint32_t rank, Epoch epoch) {
    nodes_[rank].epoch = epoch;
    std::vector<PeerId> others;
    for (uint32_t other = 0; other < size(); ++other) {
      if (other != rank) others.push_back(PeerId{other + 1});
    }
    engine(rank).begin_epoch(epoch, others);
  }

  // Posts `call` on `rank`. The memory holds random small whole numbers, whose sums are exact in
  // every type, times its scale.
  void post(uint32_t rank, const Call& call) {
    prepare(rank, call);
    start(rank, call.key);
  }
  void prepare(uint32_t rank, const Call& call) {
    Posted& posted = nodes_[rank].calls[call.key];
    posted.call = call;
    for (uint64_t bytes : sizes_of(rank, call, false))
      posted.memory.push_back(filled(bytes, call.dtype, call.scale));
    posted.before = posted.memory;
    for (uint64_t bytes : sizes_of(rank, call, true))
      posted.inputs.push_back(filled(bytes, call.dtype, call.scale));
    if (call.into_input) posted.memory = posted.before = {posted.inputs[rank]};
  }
  void start(uint32_t rank, OpKey op) { start(rank, at(rank, op)); }
  void post(const Call& call) {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (takes_part(rank, call)) post(rank, call);
    }
  }

  // Ends the operation to be posted again, without the first `keep` elements of its last post.
  void again(uint32_t rank, OpKey op, uint64_t keep) {
    Posted& posted = at(rank, op);
    posted.again = true;
    posted.kept += keep;
    engine(rank).end({op, Ending::kRestart, keep});
  }
  void post_again(uint32_t rank, OpKey op) {
    at(rank, op).finished = 0;
    start(rank, op);
  }

  void end(uint32_t rank, OpKey op, bool committed) {
    Node& node = nodes_[rank];
    if (const auto found = node.calls.find(op); found != node.calls.end())
      found->second.committed = committed;
    engine(rank).end({op, committed ? Ending::kCommitted : Ending::kAborted});
  }

  // Makes one random move of a link. Returns false if no link can move. The set of inactive lanes
  // changes all the time.
  bool move() {
    if (random() % 64 == 0) choose_lanes();
    for (int attempt = 0; attempt < 8; ++attempt) {
      if (move(*ends_[random() % ends_.size()], random() % 2 != 0)) return true;
    }
    for (const auto& end : ends_) {
      if (move(*end, true) || move(*end, false)) return true;
    }
    return false;
  }
  void settle() {
    while (!ends_.empty() && move()) {
    }
  }

  // Breaks the link. `a` notices now; `b` notices now if `b_too`, otherwise when lose(b, a) is
  // called.
  void cut(uint32_t a, uint32_t b, bool b_too = true) {
    lose(a, b);
    if (b_too) lose(b, a);
  }
  void lose(uint32_t rank, uint32_t other) {
    for (const auto& end : ends_) {
      if (end->owner == rank && end->other == other) end->alive = false;
    }
    engine(rank).link_down(PeerId{other + 1});
  }

  // That of rank 0.
  Schedule schedule_of(const Call& call) const { return Schedule(shape_of(0, call)); }

  bool takes_part(uint32_t rank, const Call& call) const {
    return call.pattern != Pattern::kTransfer || rank == call.root ||
           rank == (call.root + 1) % size();
  }

  std::mt19937_64 random;
  std::vector<std::string> failures;    // texts of on_fail_link
  std::optional<uint64_t> window = {};  // of all lanes
  std::optional<bool> wan = {};         // all members are on wan paths; by default in a kPairwise

 private:
  static constexpr std::byte kGivenBack{0xa5};
  static constexpr size_t kUnderWayMax = 100000;

  // `owner`'s end of a lane to `other`. It records which operation's memory the lane holds at the
  // moment.
  struct End : link::Port, net::FrameSink {
    End(const World& of, uint32_t mine, uint32_t theirs)
        : world(of), owner(mine), other(theirs), writer(true), reader(*this, true) {}

    void send(const net::FrameHeader& header) override { writer.push(header); }
    void send_copy(const net::FrameHeader& header, std::span<const std::byte> payload) override {
      writer.push_copy(header, payload);
    }
    void send_chunk(const net::FrameHeader& header, std::span<const std::byte> payload) override {
      writer.push_chunk(header, payload);
      leaving = header.op;
    }
    void withdraw() override { writer.withdraw(); }
    void revoke() override {
      reader.revoke();
      lands = false;
    }

    // By default in turn: not known, less than a chunk, and more than most operations.
    uint64_t window() const override {
      if (world.window) return *world.window;
      return std::array{0, 3'000, 40'000, 1'000'000}[requested++ % 4];
    }

    // True for some ends: for one end of a lane, or for both.
    bool same_machine() const override { return (owner + 2 * other) % 3 == 0; }

    void on_frame(const net::FrameHeader& header) override { sink->on_frame(header); }
    std::span<std::byte> on_chunk(const net::FrameHeader& header) override {
      const auto landing = sink->on_chunk(header);
      lands = !landing.empty();
      landing_op = header.op;
      return landing;
    }
    void on_piece(size_t from, size_t bytes) override { sink->on_piece(from, bytes); }
    void on_chunk_end(bool valid) override {
      lands = false;
      sink->on_chunk_end(valid);
    }

    const World& world;
    const uint32_t owner, other;
    net::FrameWriter writer;
    net::FrameReader reader;
    link::LaneSink* sink = nullptr;
    End* wan = nullptr;
    bool alive = true;
    Bytes rtt;  // bytes in flight to the other end
    OpKey leaving;
    bool lands = false;
    OpKey landing_op;
    mutable uint32_t requested = owner;
  };

  struct Node {
    std::unique_ptr<Engine> engine;
    Epoch epoch;
    std::map<OpKey, Posted> calls;
    std::map<OpKey, std::vector<Bytes>> results;
  };

  void connect(uint32_t a, uint32_t b) {
    auto one = std::make_unique<End>(*this, a, b);
    auto two = std::make_unique<End>(*this, b, a);
    one->wan = two.get();
    two->wan = one.get();
    one->sink = &engine(a).lane_up(PeerId{b + 1}, *one);
    two->sink = &engine(b).lane_up(PeerId{a + 1}, *two);
    ends_.push_back(std::move(one));
    ends_.push_back(std::move(two));
  }

  void start(uint32_t rank, Posted& posted) {
    const Call& call = posted.call;
    Task task{.epoch = nodes_[rank].epoch,
              .op = call.key,
              .digest = call.digest,
              .shape = shape_of(rank, call)};
    task.shape.count -= posted.kept;
    task.shape.random.first += posted.kept;
    task.keep = call.keep;
    if (!call.absent.empty() && call.absent[rank])
      task.absent = protocol::AbsentRanks::of(rank, size());
    if (call.task) {
      Task made = call.task(rank);
      task.shape = made.shape;
      task.shape.count -= posted.kept;
      task.parts = std::move(made.parts);
      task.upstream = made.upstream;
      task.downstream = made.downstream;
    } else {
      connect_task(rank, call, task);
    }
    Memory memory{.spans = {},
                  .dtype = call.dtype,
                  .reduce = call.reduce,
                  .contributors = static_cast<int>(size()),
                  .save = call.save};
    for (Bytes& bytes : posted.memory) memory.spans.emplace_back(bytes);
    for (const Bytes& bytes : posted.inputs) memory.inputs.emplace_back(bytes);
    if (call.into_input) memory.inputs[rank] = memory.spans[0];
    const size_t kept = posted.kept * element_bytes(call.dtype);
    if (kept > 0) memory.spans[0] = memory.spans[0].subspan(kept);
    engine(rank).post(std::move(task), std::move(memory));
  }

  void connect_task(uint32_t rank, const Call& call, Task& task) const {
    if (passes_directly(call)) {
      for (uint32_t other = 0; other < size(); ++other)
        task.parts.push_back(part(rank, other, call));
    }
    const Schedule schedule(task.shape);
    if (schedule.receives()) task.upstream = PeerId{(rank + size() - 1) % size() + 1};
    if (schedule.sends()) task.downstream = PeerId{(rank + 1) % size() + 1};
  }

  Shape shape_of(uint32_t rank, const Call& call) const {
    Shape shape{.pattern = call.pattern,
                .rank = rank,
                .world = size(),
                .element_bytes = element_bytes(call.dtype),
                .count = call.count,
                .format = call.format,
                .block_bytes = call.block_bytes,
                .wan = wan.value_or(call.pattern == Pattern::kPairwise),
                .random = {key_of(rank), kResultKey, partial_key_of(rank)}};
    if (call.pattern == Pattern::kBroadcast) shape.rank = (rank + size() - call.root) % size();
    if (call.pattern == Pattern::kReduce) shape.rank = (rank + 2 * size() - call.root - 1) % size();
    if (call.pattern == Pattern::kExchange) shape.count = 0;
    if (call.pattern == Pattern::kDirect)
      shape.shares = call.shares.empty() ? protocol::equal_shares(size()) : call.shares;
    if (call.pattern == Pattern::kTransfer) {
      shape.rank = rank == call.root ? 0 : 1;
      shape.world = 2;
    }
    return shape;
  }

  static bool passes_directly(const Call& call) {
    const Travel travel = row_of(call.pattern).travel;
    return travel == Travel::kContributions || travel == Travel::kParts ||
           travel == Travel::kOwners;
  }
  Part part(uint32_t rank, uint32_t other, const Call& call) const {
    const uint64_t width = element_bytes(call.dtype);
    Part part{.peer = PeerId{other + 1}};
    part.to = (call.part ? call.part(rank, other) : call.count) * width;
    part.from = (call.part ? call.part(other, rank) : call.count) * width;
    part.digest_to = call.digest + part.to;
    part.digest_from = call.digest + part.from;
    return part;
  }

  // Bytes of what it writes, or of its inputs.
  std::vector<uint64_t> sizes_of(uint32_t rank, const Call& call, bool inputs) const {
    const uint64_t bytes = call.count * element_bytes(call.dtype);
    const PatternRow& row = row_of(call.pattern);
    std::vector<uint64_t> sizes;
    const bool one_result = call.pattern == Pattern::kReduceScatter || (row.reduces && call.part);
    if (one_result) {
      return std::vector<uint64_t>(inputs ? size() : 1, bytes);
    }
    if (call.part) {
      for (uint32_t other = 0; other < size(); ++other) {
        const Part passes = part(rank, other, call);
        sizes.push_back(inputs ? passes.to : passes.from);
      }
      return sizes;
    }
    if (inputs) return {};
    const bool one = row.layout == Layout::kSliced || row.layout == Layout::kShared ||
                     row.layout == Layout::kWhole;
    if (one) return {bytes};
    const Schedule schedule(shape_of(rank, call));
    for (uint32_t block = 0; block < schedule.block_count(); ++block)
      sizes.push_back(schedule.block_bytes(block));
    return sizes;
  }

  Bytes filled(uint64_t bytes, DType dtype, float scale) {
    Bytes out(bytes);
    const size_t width = element_bytes(dtype);
    uint64_t bits = 0;
    for (size_t at_byte = 0; at_byte + width <= bytes; at_byte += width, bits >>= 4) {
      if (bits == 0) bits = random();
      const auto number = static_cast<int64_t>(bits % 16);
      const float as_float = static_cast<float>(number) * scale;
      if (dtype == DType::kFloat32) {
        std::memcpy(&out[at_byte], &as_float, width);
      } else if (dtype == DType::kBfloat16) {
        std::memcpy(&out[at_byte], reinterpret_cast<const char*>(&as_float) + 2, width);
      } else {
        std::memcpy(&out[at_byte], &number, width);
      }
    }
    return out;
  }

  void choose_lanes() {
    const End& end = *ends_[random() % ends_.size()];
    const uint64_t lanes = lanes_.at({end.owner, end.other});
    const uint64_t carries = random() % lanes;
    const auto all = (uint64_t{1} << lanes) - 1;
    engine(end.owner).set_inactive(PeerId{end.other + 1},
                                   random() & all & ~(uint64_t{1} << carries));
  }

  bool move(End& end, bool outwards) {
    return end.alive && (outwards ? transmit(end) : deliver(end));
  }

  bool transmit(End& end) {
    if (end.rtt.size() >= kUnderWayMax) return false;
    const bool chunk = end.writer.chunk_pending();
    size_t budget = 1 + random() % piece_bytes_max_;
    size_t wrote = 0;
    for (const auto& span : end.writer.gather()) {
      const size_t bytes = std::min(budget, span.size());
      end.rtt.insert(end.rtt.end(), span.begin(), span.begin() + static_cast<ptrdiff_t>(bytes));
      budget -= bytes;
      wrote += bytes;
    }
    if (wrote == 0) return false;
    end.writer.wrote(wrote);
    if (chunk && !end.writer.chunk_pending()) end.sink->chunk_sent();
    return true;
  }

  bool deliver(End& end) {
    Bytes& rtt = end.wan->rtt;
    if (rtt.empty()) return false;
    size_t budget = std::min<size_t>(1 + random() % piece_bytes_max_, rtt.size());
    size_t taken = 0;
    while (taken < budget && end.alive) {
      const std::span<std::byte> space = end.reader.space();
      const size_t bytes = std::min(budget - taken, space.size());
      std::memcpy(space.data(), rtt.data() + taken, bytes);
      taken += bytes;
      const Status status = end.reader.filled(bytes);
      EXPECT_TRUE(status.ok()) << status.message;
    }
    rtt.erase(rtt.begin(), rtt.begin() + static_cast<ptrdiff_t>(taken));
    return true;
  }

  void drained(uint32_t rank, OpKey op) {
    Posted& posted = at(rank, op);
    if (std::exchange(posted.again, false)) {
      const size_t kept = posted.kept * element_bytes(posted.call.dtype);
      EXPECT_TRUE(std::equal(posted.memory[0].begin() + static_cast<ptrdiff_t>(kept),
                             posted.memory[0].end(),
                             posted.before[0].begin() + static_cast<ptrdiff_t>(kept)))
          << "not restored on rank " << rank;
      return;
    }
    EXPECT_EQ(++posted.drained, 1);
    for (const auto& end : ends_) {
      if (end->owner != rank || !end->alive) continue;
      EXPECT_FALSE(end->writer.chunk_pending() && end->leaving == op)
          << "drained while it is being sent";
      EXPECT_FALSE(end->lands && end->landing_op == op) << "drained while it lands";
    }
    EXPECT_TRUE(posted.committed || posted.memory == posted.before)
        << "not restored on rank " << rank;
    nodes_[rank].results[op] = posted.memory;
    for (Bytes& bytes : posted.memory) std::fill(bytes.begin(), bytes.end(), kGivenBack);
  }

  const size_t piece_bytes_max_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<End>> ends_;
  // The number of lanes of each link, under both of its directions.
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> lanes_;
};

}  // namespace pccl::ring
