// Fuzzes Engine between two lying neighbours: any frame in any order, cut frames, lanes that break,
// and epochs that begin and end. An aborted operation must leave its tensor as it was before, and
// nothing may touch a tensor after it was given back.
#include "csrc/ring/engine.h"
#include "csrc/ring/schedule.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "tests/fuzz/fuzz.h"

namespace pccl::fuzz {
namespace {

using net::FrameHeader;
using net::FrameType;
using ring::Pattern;
using Bytes = std::vector<std::byte>;

constexpr PeerId kUp{1}, kSelf{2}, kDown{3};
constexpr uint64_t kDigest = 7;
constexpr uint32_t kWorld = 3;
constexpr ring::Travel kByParts = ring::Travel::kParts;

// memcmp takes no part in the coverage that guides the fuzzer, and costs little.
bool all(const Bytes& bytes, std::byte value) {
  return bytes.empty() ||
         (bytes[0] == value && std::memcmp(&bytes[0], &bytes[0] + 1, bytes.size() - 1) == 0);
}

class World {
 public:
  explicit World(std::span<const uint8_t> bytes) : chance_(Chance::in_events(bytes)) {}
  void run() {
    begin_epoch();
    while (!chance_.over()) anything();
    end_epoch();
    for (const PeerId peer : {kUp, kDown}) link_down(peer);
  }

 private:
  // One lane to a liar. Our frames are discarded; its frames come from the input.
  struct Lane : link::Port, net::FrameSink {
    explicit Lane(Chance& by) : chance(by) {}
    void send(const FrameHeader&) override {}
    void send_copy(const FrameHeader&, std::span<const std::byte> payload) override {
      sum += payload.empty() ? 0 : std::to_integer<uint64_t>(payload.back());
    }
    void send_chunk(const FrameHeader&, std::span<const std::byte> payload) override {
      require(!sending, "one chunk at a time");
      sending = true;
      sum += payload.empty() ? 0 : std::to_integer<uint64_t>(payload.back());
    }
    void withdraw() override { sending = false; }
    void revoke() override { reader.revoke(); }
    uint64_t window() const override { return chance.below(3) * 3000; }
    bool same_machine() const override { return is_local; }
    void on_frame(const FrameHeader& header) override { sink->on_frame(header); }
    std::span<std::byte> on_chunk(const FrameHeader& header) override {
      return sink->on_chunk(header);
    }
    void on_piece(size_t at, size_t bytes) override { sink->on_piece(at, bytes); }
    void on_chunk_end(bool valid) override { sink->on_chunk_end(valid); }

    Chance& chance;
    link::LaneSink* sink = nullptr;
    net::FrameReader reader{*this, false};
    bool sending = false;
    bool is_local = false;
    bool broken = false;  // the reader has refused its bytes
    uint64_t sum = 0;     // reads borrowed bytes, so that a sanitizer checks them
  };
  struct Posted {
    Bytes memory, before, inputs;
    bool committed = false, ended = false, drained = false;
    std::optional<ring::Schedule> direct;  // of a direct all-reduce
  };

  void anything() {
    chance_.next_event();
    switch (chance_.below(16)) {
      case 0: return post();
      case 1: return end(chance_.once_in(2));
      case 2: return lane_up();
      case 3: return link_down(some_peer());
      case 4: end_epoch(); return begin_epoch();
      case 5: return rest();
      case 6:
        if (Lane* lane = some_lane(); lane != nullptr && lane->sending) {
          lane->sending = false;
          lane->sink->chunk_sent();
        }
        return;
      case 7:
        if (!posted_.empty()) engine_.done(posted_.begin()->first);
        return;
      default: return frame();
    }
  }

  void begin_epoch() {
    ++epoch_.value;
    sequence_ = 0;
    engine_.begin_epoch(epoch_, {kUp, kDown});
  }
  void end_epoch() {
    while (std::any_of(posted_.begin(), posted_.end(),
                       [](const auto& at) { return !at.second->ended; }))
      end(false);
    require(std::all_of(posted_.begin(), posted_.end(),
                        [](const auto& at) { return at.second->drained; }),
            "what has ended is drained");
    for (const auto& [key, posted] : posted_) {
      require(all(posted->memory, std::byte{0xa5}), "nothing is touched once it is given back");
    }
    posted_.clear();
  }
  // Lends one span for each of the blocks.
  template <typename Span>
  static void lend(std::vector<Span>& spans, Bytes& memory, uint64_t blocks) {
    for (uint64_t block = 0; block < blocks; ++block)
      spans.push_back(
          std::span(memory).subspan(block * memory.size() / blocks, memory.size() / blocks));
  }
  void post() {
    const ring::PatternRow& row = ring::kPatterns[chance_.below(ring::kPatterns.size())];
    if (row.pattern == Pattern::kPairwise || row.pattern == Pattern::kTransfer)
      return;  // for worlds of two
    const bool by_owners = row.travel == ring::Travel::kOwners;
    const bool direct =
        row.travel == ring::Travel::kContributions || row.travel == kByParts || by_owners;
    uint64_t count = chance_.below(200) * (chance_.once_in(4) ? 600 : 1);
    if (row.travel == ring::Travel::kContributions)
      count = std::min<uint64_t>(count, protocol::kOneShotBytesMax / 4);
    const uint64_t bytes = count * 4;
    const bool scatters = row.pattern == Pattern::kReduceScatter;
    const bool in_blocks =
        !scatters && (row.layout == ring::Layout::kPerRank || (direct && !row.reduces));
    const OpKey key{TagId{1}, sequence_++};
    auto& posted = posted_[key] = std::make_unique<Posted>();
    posted->memory.assign(bytes * (in_blocks ? kWorld : 1), std::byte{1});
    posted->before = posted->memory;
    const bool apart = scatters || (direct && !row.reduces);
    if (apart) posted->inputs.assign(bytes * kWorld, std::byte{1});
    ring::Memory memory{
        .spans = {}, .dtype = DType::kFloat32, .reduce = ReduceOp::kSum, .contributors = kWorld};
    lend(memory.spans, posted->memory, in_blocks ? kWorld : 1);
    if (apart) lend(memory.inputs, posted->inputs, kWorld);
    ring::Task task{.epoch = epoch_,
                    .op = key,
                    .digest = kDigest,
                    .shape = {.pattern = row.pattern,
                              .rank = 1,
                              .world = kWorld,
                              .element_bytes = 4,
                              .count = row.travel == kByParts ? 0 : count,
                              .block_bytes = {},
                              .wan = chance_.once_in(2)}};
    if (by_owners) {
      task.shape.shares = some_shares();
      posted->direct.emplace(task.shape);
    }
    if (direct) {
      for (const PeerId peer : {kUp, kSelf, kDown})
        task.parts.push_back({peer, bytes, bytes, kDigest, kDigest});
    } else {
      const ring::Schedule schedule(task.shape);
      if (schedule.receives()) task.upstream = kUp;
      if (schedule.sends()) task.downstream = kDown;
    }
    engine_.post(std::move(task), std::move(memory));
  }
  std::vector<uint16_t> some_shares() {
    switch (chance_.below(4)) {
      case 0: return {0, protocol::kSharesTotal, 0};
      case 1: return {128, 0, 128};
      case 2: return {0, 200, 56};
      default: return {64, 128, 64};
    }
  }
  // Commits only operations that were transferred.
  void end(bool commit) {
    for (auto& [key, posted] : posted_) {
      if (posted->ended || (chance_.once_in(3) && !chance_.over())) continue;
      posted->ended = true;
      posted->committed = commit && transferred_[{epoch_, key}];
      const auto ending = posted->committed ? ring::Ending::kCommitted : ring::Ending::kAborted;
      return engine_.end({key, ending});
    }
  }
  void drained(OpKey key) {
    Posted& posted = *posted_.at(key);
    require(posted.ended && !posted.drained, "it is drained once, after its end");
    posted.drained = true;
    require(posted.committed || posted.memory == posted.before, "an abort leaves it as it was");
    std::fill(posted.memory.begin(), posted.memory.end(), std::byte{0xa5});
    require(all(posted.inputs, std::byte{1}), "inputs are only read");
    posted.inputs.clear();
    posted.inputs.shrink_to_fit();  // a sanitizer sees later reads
  }

  PeerId some_peer() { return chance_.once_in(2) ? kUp : kDown; }
  Lane* some_lane() {
    auto& lanes = lanes_[some_peer()];
    return lanes.empty() ? nullptr : lanes[chance_.below(lanes.size())].get();
  }
  void lane_up() {
    const PeerId peer = some_peer();
    auto& lanes = lanes_[peer];
    if (lanes.size() >= 3) return;
    Lane& lane = *lanes.emplace_back(std::make_unique<Lane>(chance_));
    lane.is_local = chance_.once_in(2);
    lane.sink = &engine_.lane_up(peer, lane);
  }
  void link_down(PeerId peer) {
    if (lanes_[peer].empty()) return;
    engine_.link_down(peer);
    for (const auto& lane : lanes_[peer]) lane->reader.detach();
    lanes_[peer].clear();
  }
  void rest() {
    const PeerId peer = some_peer();
    const size_t lanes = lanes_[peer].size();
    if (lanes > 1) engine_.set_inactive(peer, chance_.below((uint64_t{1} << lanes) - 1));
  }
  void frame() {
    Lane* const lane = some_lane();
    if (lane == nullptr || lane->broken) return;
    FrameHeader header;
    const uint64_t kind = chance_.below(6);
    header.type =
        kind < 3 ? FrameType::kChunk : static_cast<FrameType>(3 + chance_.below(9));  // no hello
    header.epoch = Epoch{epoch_.value - chance_.below(2)};
    if (chance_.once_in(30)) ++header.epoch.value;
    header.op = {TagId{1}, static_cast<uint32_t>(chance_.below(sequence_ + 3))};
    header.digest = chance_.once_in(20) ? 0 : kDigest;
    header.round = static_cast<uint16_t>(chance_.below(5));
    header.block = static_cast<uint32_t>(chance_.below(4));
    header.slice = static_cast<uint32_t>(chance_.below(3));
    header.value = chance_.once_in(10) ? chance_() : chance_.below(9);
    if (header.type != FrameType::kChunk) return feed(*lane, net::encode_header(header));
    header.length = static_cast<uint32_t>(chance_.below(40) * 4);
    // Mostly a length that is expected: a third of the tensor, or all of it.
    const auto known = posted_.find(header.op);
    if (known != posted_.end() && !chance_.once_in(4)) {
      const size_t whole = known->second->memory.size();
      header.length = static_cast<uint32_t>(chance_.once_in(3) ? whole : whole / 3 / 4 * 4);
      if (known->second->direct) header.length = block_bytes(header, *known->second->direct);
    }
    header.length = std::min<uint32_t>(header.length, protocol::kChunkBytesMax);
    feed(*lane, net::encode_header(header));
    if (!alive(lane) || lane->broken) return;
    Bytes rest(header.length + protocol::kFrameTrailerBytes, std::byte{0x3f});
    std::fill(rest.end() - protocol::kFrameTrailerBytes, rest.end(), std::byte{});
    rest[header.length + 4] = std::byte{chance_.once_in(8) ? uint8_t{2} : uint8_t{1}};
    if (chance_.once_in(6))
      rest.resize(chance_.below(rest.size() + 1));  // cut off: the bytes that follow are garbage
    if (header.length > 0) feed(*lane, rest);
  }
  static uint32_t block_bytes(const FrameHeader& header, const ring::Schedule& direct) {
    const uint64_t index = uint64_t{header.slice} * kWorld + header.block;
    return header.block < kWorld && index < direct.written_count() ? direct.written(index).bytes
                                                                   : 0;
  }
  bool alive(const Lane* lane) const {
    for (const auto& [peer, lanes] : lanes_) {
      for (const auto& one : lanes) {
        if (one.get() == lane) return true;
      }
    }
    return false;
  }
  void feed(Lane& lane, std::span<const std::byte> bytes) {
    while (!bytes.empty() && !lane.broken) {
      const std::span<std::byte> space = lane.reader.space();
      const size_t piece = std::min({space.size(), bytes.size(), 1 + chance_.below(5000)});
      std::memcpy(space.data(), bytes.data(), piece);
      if (!lane.reader.filled(piece).ok()) lane.broken = true;
      bytes = bytes.subspan(piece);
      if (!failed_.empty()) break;
    }
    std::vector<PeerId> failed;
    failed.swap(failed_);
    for (const PeerId peer : failed) link_down(peer);
  }

  Chance chance_;
  Epoch epoch_{1};
  uint32_t sequence_ = 0;
  std::map<OpKey, std::unique_ptr<Posted>> posted_;
  std::map<std::pair<Epoch, OpKey>, bool> transferred_;
  std::map<PeerId, std::vector<std::unique_ptr<Lane>>> lanes_;
  std::vector<PeerId> failed_;
  ring::Engine engine_{
      {.on_event =
           [this](const ring::DataEvent& event) {
             if (const auto* done = std::get_if<ring::OpTransferred>(&event))
               transferred_[{done->epoch, done->op}] = true;
             if (const auto* over = std::get_if<ring::OpDrained>(&event)) drained(over->op);
           },
       .on_fail_link = [this](PeerId peer, const std::string&) { failed_.push_back(peer); }}};
};

}  // namespace
}  // namespace pccl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pccl::fuzz::World world({data, size});
  world.run();
  return 0;
}
