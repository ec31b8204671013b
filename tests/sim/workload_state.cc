// The shared state that a Workload offers: of the training, of a newcomer that does not have all of
// it, and of one that is wrong.

#include <algorithm>
#include <utility>

#include "csrc/memory/state_hash.h"
#include "csrc/protocol/state.h"
#include "tests/sim/workload.h"

namespace pccl::sim {
namespace {

// The last entry has several parts, the others are one piece (peer::Options::piece_bytes).
constexpr size_t kStateKeys = 4;
constexpr size_t kStateBytes[kStateKeys] = {64, 4000, 12, 70000};

}  // namespace

std::vector<std::vector<std::byte>> Workload::fresh_state() {
  std::vector<std::vector<std::byte>> state;
  for (const size_t bytes : kStateBytes) state.emplace_back(bytes);
  return state;
}

peer::JointCalled Workload::offer() const {
  peer::JointCalled call{.handle = node_.new_handle(),
                         .kind = protocol::JointKind::kSyncSharedState,
                         .offer = {},
                         .timeout = rules_.timeout};
  call.offer.revision = revision_;
  call.offer.partial = may_add().has_value();
  for (size_t key = 0; key < kStateKeys; ++key) {
    if (lacks_.contains(key)) continue;
    call.offer.entries.push_back(
        {.key = "k" + std::to_string(key),
         .dtype = DType::kUint8,
         .shape = {static_cast<int64_t>(kStateBytes[key])},
         .hash = memory::state_hash(state_[key].data(), state_[key].size())});
  }
  return call;
}

// Half of the newcomers that only receive do not have all entries yet, or none.
std::set<size_t> Workload::lacking() const {
  const uint64_t id = node_.id().value;
  if (!newcomer_ || id % 4 != 0) return {};
  if (id % 3 == 0) return {kStateKeys - 1};
  return id % 3 == 1 ? std::set<size_t>{1, 2} : std::set<size_t>{0, 1, 2, 3};
}

std::optional<peer::StateSpans::MayAdd> Workload::may_add() const {
  if (lacks_.empty()) return {};
  return peer::StateSpans::MayAdd{uint64_t{1} << 20, {}};
}

void Workload::on_added(std::vector<peer::AddedEntry> added) {
  if (added.size() != lacks_.size()) fail("P3 " + where() + ": other entries were added");
  for (const peer::AddedEntry& entry : added) {
    const auto key = static_cast<size_t>(entry.key.back() - '0');
    if (lacks_.erase(key) == 0) fail("P3 " + where() + ": " + entry.key + " was added");
    std::copy_n(entry.memory.get(), entry.shape[0], state_[key].begin());
  }
}

// Newcomers with an odd id come with fresh weights that count like the state of the others.
void Workload::offer_state() {
  lacks_ = lacking();
  peer::JointCalled call = offer();
  joint_ = call.kind;
  if (newcomer_ && node_.id().value % 2 == 0)
    call.offer.strategy = protocol::SyncStrategy::kReceiveOnly;
  strategy_ = call.offer.strategy;
  in_background_ = Random(mix(mix(seed_, node_.id().value), turn_)).once_in(2);
  call.background = in_background_;
  call_sync(std::move(call));
}

// Some peers offer a digest alone, as those with many entries do.
void Workload::call_sync(peer::JointCalled call) {
  if (node_.id().value % 3 != 0) {
    call.entries = std::move(call.offer.entries);
    call.offer.entries.clear();
    call.offer.digest = protocol::state_hash(call.entries);
  }
  node_.call(std::move(call));
}

void Workload::offer_wrong_state() {
  lacks_.clear();
  peer::JointCalled call = offer();
  joint_ = call.kind;
  std::vector<protocol::StateEntry>& entries = call.offer.entries;
  const Mistake mistake = rules_.mistake;
  if (mistake == Mistake::kShape) entries[1].shape = {4001};
  if (mistake == Mistake::kDtype) entries[0].dtype = DType::kInt8;
  if (mistake == Mistake::kAhead) call.offer.revision = uint64_t{1} << 40;
  if (mistake == Mistake::kExtraKey) {
    entries.push_back(entries[0]);
    entries.back().key = "k9";
  }
  if (mistake == Mistake::kSendOnly) {
    call.offer.strategy = protocol::SyncStrategy::kSendOnly;
    entries[0].hash ^= 1;
  }
  call_sync(std::move(call));
}

void Workload::offer_and_hang() {
  node_.hangs = true;
  for (auto& entry : state_) std::fill(entry.begin(), entry.end(), std::byte{0xee});
  lacks_.clear();
  strategy_ = protocol::SyncStrategy::kReceiveOnly;
  peer::JointCalled call = offer();
  call.offer.strategy = strategy_;
  joint_ = call.kind;
  call_sync(std::move(call));
}

std::vector<peer::StateSpan> Workload::state() {
  std::vector<peer::StateSpan> spans;
  for (size_t key = 0; key < kStateKeys; ++key) {
    if (lacks_.contains(key)) continue;
    spans.push_back({"k" + std::to_string(key),
                     DType::kUint8,
                     {static_cast<int64_t>(kStateBytes[key])},
                     state_[key]});
  }
  return spans;
}

// ---- Waits ----

// Its only thread waits for its operations in the order in which it has called them.
peer::WaitsSeen Workload::waits() const {
  peer::ThreadWait wait{0, waits_since_};
  if (joint_ && !apart_) {
    wait.handle = peer::kInJointCall;
  } else if (waiting() || (failed_ && !open_.empty())) {
    const bool late = stage_ == Stage::kLate || failed_;
    const auto next = std::find_if(open_.begin(), open_.end(), [late](const auto& one) {
      const Call& call = one.second.call;
      return late || !(call.late || call.crossing);
    });
    wait.handle = next->first;
  }
  return {{wait}};
}

}  // namespace pccl::sim
