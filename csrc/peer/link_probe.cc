// One probe:
//   Probe                                  OpenLanes; SampleLink now and then
//   no lane is being opened any more       StartOp, twice
//   bytes come                             the clock starts
//   a third of its time has passed         bytes count from here on, or from a bit later on
//   nearly all of it has passed            bytes count until here, or until a bit earlier
//   all of it has passed                   ProbeReport; EndOp, twice
//   all bytes arrive before that           ProbeReport; EndOp for each transfer when it is over

#include "csrc/peer/link_probe.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "csrc/base/transitions.h"
#include "csrc/peer/request.h"

namespace pccl::peer {
namespace {

using ProbeState = LinkProbe::State;

const char* name_of(ProbeState state) {
  switch (state) {
    case ProbeState::kIdle: return "idle";
    case ProbeState::kPreparing: return "preparing";
    case ProbeState::kWaiting: return "waiting";
    case ProbeState::kMeasuring: return "measuring";
    case ProbeState::kSending: return "sending";
  }
  return "unknown";
}

const Transitions<ProbeState, 8> kProbeTransitions(
    "a probe of a link", name_of,
    {{ProbeState::kIdle, ProbeState::kPreparing, "Probe", "OpenLanes, SampleLink"},
     {ProbeState::kPreparing, ProbeState::kWaiting,
      "LinkSampled: no lane is being opened, or that has taken too long", "StartOp, twice"},
     {ProbeState::kWaiting, ProbeState::kMeasuring, "LinkSampled: bytes have come"},
     {ProbeState::kPreparing, ProbeState::kIdle,
      "LinkSampled: there is no link; another Probe; EpochEnd", "ProbeReport of 0 bytes"},
     {ProbeState::kWaiting, ProbeState::kIdle,
      "LinkSampled: nothing has come in time; no memory; another Probe; EpochEnd",
      "ProbeReport of 0 bytes; EndOp, twice"},
     {ProbeState::kMeasuring, ProbeState::kIdle,
      "LinkSampled after its time; no memory; another Probe; EpochEnd",
      "ProbeReport; EndOp, twice"},
     {ProbeState::kMeasuring, ProbeState::kSending, "LinkSampled: all has come before its time",
      "ProbeReport; EndOp"},
     {ProbeState::kSending, ProbeState::kIdle,
      "all is sent; its time is over; no memory; another Probe; EpochEnd", "EndOp"}});

// The counted part of a probe begins at a sample in kBegins, and ends at a sample in kEnds; both
// are in percent of the time of the probe (link_probe.h). Before this part, the path comes up to
// its rate. After this part, the other end may have stopped: it may have seen its first byte
// earlier, by up to the interval between two samples.
struct Percent {
  int from, to;
};
constexpr Percent kBegins{34, 60}, kEnds{80, 96};
// The interval between two samples, in percent of the time of the probe: before the first byte, and
// after it.
constexpr int kLookPercent = 2, kMeasurePercent = 4;
constexpr Duration kLookMin = std::chrono::milliseconds(1);
// A transfer has this many blocks for each millisecond. So a path of 100 Gbit/s does not carry all
// of them before the time is over.
constexpr uint64_t kBlocksPerMillisecond = 3;

}  // namespace

OpKey LinkProbe::key_of(PeerId source, PeerId destination, uint32_t incarnation, uint32_t round) {
  return {reserved_tag("probe " + text(source) + " " + text(destination) + " " +
                       std::to_string(incarnation)),
          round};
}

void LinkProbe::enter(State next) { state_ = kProbeTransitions.step(state_, next); }

Status LinkProbe::begin(const protocol::Probe& probe) {
  if (probe.milliseconds == 0 || probe.milliseconds > protocol::kProbeBudgetMax)
    return violation("Probe of " + std::to_string(probe.milliseconds) + " ms");
  if (probe.bytes_max > 0 && probe.bytes_max < protocol::kProbeBytesMin)
    return violation("Probe of " + std::to_string(probe.bytes_max) + " bytes");
  if (probe.peer == membership_.self()) return violation("Probe of this peer itself");
  const std::tuple which(membership_.epoch(), membership_.incarnation(), probe.round);
  if (last_ && which <= *last_) return {};
  stop();
  last_ = which;
  probe_ = probe;
  if (membership_.ended() || !membership_.rank_of(probe.peer)) {
    context_.send(protocol::ProbeReport{probe.round, probe.peer, 0, 0});
    return {};
  }
  enter(State::kPreparing);
  incarnation_ = membership_.incarnation();
  told_at_ = context_.now;
  posted_ = {};
  looks_.clear();
  begins_.clear();
  ends_.clear();
  all_came_ = false;
  context_.emit(OpenLanes{.peer = probe.peer, .measured = true});
  look();
  return {};
}

ring::Task LinkProbe::task_of(PeerId source, PeerId destination) const {
  const Options& options = context_.options;
  uint64_t most = options.probe_bytes_max;
  if (probe_.bytes_max > 0) most = std::min(most, probe_.bytes_max);
  const uint64_t block_bytes = std::min(options.piece_bytes, most);
  const uint64_t blocks = std::min(probe_.milliseconds * kBlocksPerMillisecond, most / block_bytes);
  ring::Task task;
  task.epoch = membership_.epoch();
  task.op = key_of(source, destination, incarnation_, probe_.round);
  task.digest = tag_id("probe of " + std::to_string(blocks * block_bytes)).value;
  task.shape.pattern = ring::Pattern::kTransfer;
  task.shape.world = 2;
  task.shape.wan = membership_.topology().wan;
  task.shape.count = blocks * block_bytes;
  task.shape.block_bytes.assign(blocks, block_bytes);
  const bool receives = destination == membership_.self();
  task.shape.rank = receives ? 1 : 0;
  (receives ? task.upstream : task.downstream) = receives ? source : destination;
  task.filler = true;
  return task;
}

void LinkProbe::post() {
  const PeerId self = membership_.self();
  for (const bool receives : {true, false}) {
    StartOp start;
    start.task = receives ? task_of(probe_.peer, self) : task_of(self, probe_.peer);
    start.dtype = DType::kBytes;
    start.probe = true;
    transfers_[{start.task.epoch, start.task.op}] = false;
    context_.emit(std::move(start));
  }
}

bool LinkProbe::sends() const {
  const OpKey there = key_of(membership_.self(), probe_.peer, incarnation_, probe_.round);
  const auto at = transfers_.find({membership_.epoch(), there});
  return at != transfers_.end() && !at->second;
}

void LinkProbe::sampled(const LinkSampled& sample) {
  if (state_ == State::kIdle || state_ == State::kSending || sample.peer != probe_.peer) return;
  const Mark mark{context_.now, sample.bytes_received};
  if (!sample.up || mark.bytes < (looks_.empty() ? posted_ : looks_.back()).bytes)
    return finish(0, {});  // the link is down, or it is a new link
  const Duration waited = mark.at - told_at_;
  const Duration patience = std::min(percent(100), protocol::kConnectTimeoutMax);
  if (state_ == State::kPreparing && (sample.opening == 0 || waited >= patience)) {
    enter(State::kWaiting);
    posted_ = mark;
    return post();
  }
  if (state_ == State::kWaiting && (mark.bytes > posted_.bytes || all_came_)) {
    enter(State::kMeasuring);
    first_at_ = mark.at;
    look_at_ = next_look();
  } else if (state_ == State::kWaiting && waited >= 2 * patience) {
    return finish(0, {});
  }
  if (state_ == State::kMeasuring) measure(mark);
}

void LinkProbe::measure(const Mark& mark) {
  const Duration passed = mark.at - first_at_;
  if (passed <= percent(100)) looks_.push_back(mark);
  const auto is_in = [&](const Percent& part, const std::vector<Mark>& marks) {
    return passed >= percent(part.from) && (marks.empty() || passed <= percent(part.to));
  };
  if (is_in(kEnds, ends_)) {
    ends_.push_back(mark);
  } else if (passed < percent(kEnds.from) && is_in(kBegins, begins_)) {
    begins_.push_back(mark);
  }
  if (passed >= percent(100) || all_came_) return finish_with(mark);
  look_at_ = next_look();
}

// If all bytes arrive before the time is over, the begins are the samples that saw a third to two
// thirds of the bytes. Without such a sample, the time since the post counts: perhaps nearly all
// bytes were here when the first byte was seen, and the rate since then would be much too high. If
// no rate is above 0, because no byte arrived for a long time, all bytes since the first begin
// count.
void LinkProbe::finish_with(const Mark& last) {
  Mark start{first_at_, posted_.bytes};
  if (all_came_) {
    start = posted_;
    const uint64_t all = last.bytes - posted_.bytes;
    const auto outside = [&](const Mark& mark) {
      const uint64_t came = mark.bytes - posted_.bytes;
      return came < all / 3 || came > all - all / 3;
    };
    begins_ = looks_;
    std::erase_if(begins_, outside);
  }
  std::erase_if(begins_, [&](const Mark& mark) { return mark.at >= last.at; });
  if (begins_.empty()) begins_ = {start};
  if (ends_.empty() || all_came_) ends_ = {last};
  const auto rate = [](const Mark& first, const Mark& end) {
    const double seconds = std::chrono::duration<double>(end.at - first.at).count();
    return seconds > 0 ? static_cast<double>(end.bytes - first.bytes) / seconds : 0;
  };
  Mark from = begins_.front(), to = ends_.back();
  double best = 0;
  for (const Mark& end : ends_) {
    const auto lowest =
        std::ranges::min_element(begins_, {}, [&](const Mark& first) { return rate(first, end); });
    if (rate(*lowest, end) <= best) continue;
    best = rate(*lowest, end);
    std::tie(from, to) = std::tie(*lowest, end);
  }
  rate(from, to) > 0 ? finish(to.bytes - from.bytes, to.at - from.at) : finish(0, {});
}

void LinkProbe::finish(uint64_t bytes, Duration time) {
  protocol::ProbeReport report{probe_.round, probe_.peer, bytes, 0};
  if (bytes > 0) {
    const auto rounded = std::chrono::round<std::chrono::milliseconds>(time).count();
    report.milliseconds = static_cast<uint32_t>(std::max<int64_t>(rounded, 1));
  }
  context_.send(report);
  if (state_ != State::kMeasuring || !all_came_ || !sends()) return stop();
  enter(State::kSending);
  look_at_ = first_at_ + percent(100);
}

// ---- The transfers ----

// A transfer is over before the probe has ended it. The transfer to this end is longer than most
// paths can carry in the time; but the path may be very fast, or the probe may have a limit of
// bytes.
bool LinkProbe::transferred(Epoch epoch, OpKey key) {
  const auto at = transfers_.find({epoch, key});
  if (at == transfers_.end()) return false;
  if (at->second) return true;  // it is being drained
  PCCL_ASSERT(state_ > State::kPreparing);
  transfers_.erase(at);
  context_.emit(EndOp{key, Ending::kCommitted});
  if (state_ == State::kSending) stop();
  if (key != key_of(probe_.peer, membership_.self(), incarnation_, probe_.round)) return true;
  all_came_ = true;
  look();
  return true;
}

bool LinkProbe::failed(Epoch epoch, OpKey key) {
  const auto at = transfers_.find({epoch, key});
  if (at == transfers_.end()) return false;
  if (!at->second) state_ == State::kSending ? stop() : finish(0, {});
  return true;
}

void LinkProbe::end_transfers() {
  for (auto& [key, ended] : transfers_) {
    if (!std::exchange(ended, true)) context_.emit(EndOp{key.second});
  }
}

void LinkProbe::stop() {
  if (state_ != State::kIdle) enter(State::kIdle);
  end_transfers();
}

// ---- Time ----

Instant LinkProbe::next_look() const {
  const Instant now = context_.now;
  if (state_ == State::kMeasuring) {
    const Instant end = first_at_ + percent(100);
    const Instant next = now + std::max(percent(kMeasurePercent), kLookMin);
    return now < end ? std::min(next, end) : next;
  }
  return now + std::max(percent(kLookPercent), kLookMin);
}

void LinkProbe::look() {
  context_.emit(SampleLink{probe_.peer});
  look_at_ = next_look();
}

void LinkProbe::on_time() {
  if (state_ == State::kIdle || look_at_ > context_.now) return;
  state_ == State::kSending ? stop() : look();
}

std::optional<Instant> LinkProbe::deadline() const {
  return state_ == State::kIdle ? std::nullopt : std::optional(look_at_);
}

void LinkProbe::check() const {
  size_t running = 0;
  for (const auto& [key, ended] : transfers_) {
    PCCL_ASSERT(key.first <= membership_.epoch());
    if (!ended) ++running;
  }
  const bool posted = state_ == State::kWaiting || state_ == State::kMeasuring;
  PCCL_ASSERT(posted ? running <= 2 : running == (state_ == State::kSending ? 1 : 0));
  PCCL_ASSERT(state_ == State::kIdle || (last_ && !membership_.ended() && !membership_.out()));
  PCCL_ASSERT(looks_.size() <= 100 / kMeasurePercent + 2);  // one more when all data is here
}

// ---- Memory ----

Result<ring::Memory> probe_memory(const ring::Task& task) {
  PCCL_ASSERT(!task.shape.block_bytes.empty());
  const uint64_t bytes = task.shape.block_bytes.front();
  const std::shared_ptr<std::byte[]> scratch(new (std::nothrow) std::byte[bytes]);
  if (scratch == nullptr)
    return Status{Code::kSystem, "no memory for " + std::to_string(bytes) + " bytes", {}};
  uint64_t random = 0x9e3779b97f4a7c15;
  for (uint64_t at = 0; task.downstream && at < bytes; at += sizeof random) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    std::memcpy(&scratch[at], &random, std::min<uint64_t>(sizeof random, bytes - at));
  }
  ring::Memory memory;
  memory.spans.assign(task.shape.block_bytes.size(), {scratch.get(), bytes});
  memory.dtype = DType::kBytes;
  memory.save = false;
  memory.own = scratch;
  return memory;
}

}  // namespace pccl::peer
