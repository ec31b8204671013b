// A receiver, from SyncPlan to Answer:
//   asks for the manifest if some entry is cut, for the news of other receivers, and for pieces
//   piece here    -> CheckPiece (a part waits for the manifest)
//   piece right   -> it is served to others; all wanted pieces are right -> Fetched
//   piece wrong   -> from a source: Fetched with the reason; else that receiver is asked no more
// A peer that has a piece sends it on request. A request for a piece that is not here yet waits.

#include "csrc/peer/state/state_sync.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <set>

#include "csrc/base/transitions.h"
#include "csrc/peer/request.h"
#include "csrc/protocol/state.h"

namespace pccl::peer {
namespace {

// Maximum number of pieces under way from one peer. A wan path has more of them, because a request
// needs a long time to cross the path.
constexpr uint32_t kPerPeer = 2;
constexpr uint32_t kPerPeerWan = 8;
constexpr size_t kKeysNamedMax = 4;
constexpr Duration kLineEvery = std::chrono::seconds(1);
constexpr uint64_t kMiB = uint64_t{1} << 20;

using TransferState = StateSync::State;

const char* name_of(TransferState state) {
  switch (state) {
    case TransferState::kRunning: return "running";
    case TransferState::kDraining: return "draining";
    case TransferState::kFinished: return "finished";
  }
  return "unknown";
}

// A receiver's transfer begins when it asks, and a sender's when it is asked.
const Transitions<TransferState, 3> kTransferTransitions(
    "a transfer of shared state", name_of,
    {{TransferState::kRunning, TransferState::kFinished, "transferred", "EndOp; CheckPiece"},
     {TransferState::kRunning, TransferState::kDraining,
      "Answer; EpochEnd; this peer is out of the run; SyncPlan of a restarted master", "EndOp"},
     {TransferState::kDraining, TransferState::kFinished, "drained",
      "BeginPieces of the next plan after the last drain"}});

bool ascending_below(const std::vector<uint32_t>& keys, size_t bound) {
  const auto fault = std::adjacent_find(keys.begin(), keys.end(), std::greater_equal<>());
  return !keys.empty() && fault == keys.end() && keys.back() < bound;
}

bool contains(const std::vector<PeerId>& peers, PeerId peer) {
  return std::find(peers.begin(), peers.end(), peer) != peers.end();
}

void append_number(std::string& text, uint32_t number) {
  std::array<char, std::numeric_limits<uint32_t>::digits10 + 1> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
}

bool is_piece(uint32_t what) { return (what & ~kSpare) < kManifest; }

}  // namespace

// ---- The plan ----

Status StateSync::on_plan(const protocol::SyncPlan& plan, const Joint::OpenCall& call) {
  if (plan_ && *plan_ == plan) {  // repeated after a reconnection
    repeat();
    return {};
  }
  if (may_be_replaced_) reconfigure();
  may_be_replaced_ = false;
  const std::string why = check(plan, call);
  if (!why.empty()) return violation("SyncPlan " + std::to_string(plan.number) + ": " + why);
  PCCL_ASSERT(!plan_ && !said_ && !started_ && !stopped_);
  plan_ = plan;
  handle_ = call.handle;
  if (contains(plan.receivers, membership_.self()))
    wanted_keys_ = protocol::lacking(call.entries(), plan.entries);
  start_when_clear();
  return {};
}

// The reason why this peer cannot accept a plan. Empty: it can.
std::string StateSync::check(const protocol::SyncPlan& plan, const Joint::OpenCall& call) const {
  if (call.vote.kind != protocol::JointKind::kSyncSharedState || call.vote.number != plan.number ||
      call.result) {
    return "no such call is open here";
  }
  if (plan_ || membership_.ended()) return "another one has come before";
  const std::vector<protocol::StateEntry>& own = call.entries();
  if (call.vote.offer.partial) {
    if (!protocol::is_sensible(plan.entries)) return "its entries make no sense";
    if (!protocol::is_part_of(own, plan.entries)) return "it lacks entries that were offered";
  } else if (!protocol::same_layouts(own, plan.entries)) {
    return "its entries are not those that were offered";
  }
  if (!ascending_below(plan.keys, plan.entries.size())) return "its keys make no sense";
  std::set<PeerId> all;
  for (const std::vector<PeerId>* peers : {&plan.sources, &plan.receivers}) {
    for (const PeerId peer : *peers) {
      if (!membership_.rank_of(peer)) return "a peer that is not of this epoch takes part";
      if (!all.insert(peer).second) return "a peer takes part twice";
    }
  }
  if (plan.receivers.empty()) return "nobody lacks anything";
  const std::vector<uint32_t> lacks = protocol::lacking(own, plan.entries);
  if (contains(plan.receivers, membership_.self())) {
    const bool covered =
        std::includes(plan.keys.begin(), plan.keys.end(), lacks.begin(), lacks.end());
    if (lacks.empty() || !covered) return "it does not bring what this peer lacks";
  } else if (!lacks.empty()) {
    return "this peer lacks entries and is no receiver";
  }
  return {};
}

// Starts the plan, but waits while the memory of an earlier plan may still be written or read.
void StateSync::start_when_clear() {
  if (!plan_ || started_ || stopped_ || busy() || checking_ > 0) return;
  started_ = true;
  start();
}

void StateSync::start() {
  PCCL_ASSERT(plan_ && !membership_.ended());
  ++plans_;
  layout_ = PieceLayout(plan_->entries, plan_->keys, context_.options.piece_bytes);
  const bool keeps = kept_ && kept_->entries == plan_->entries && kept_->keys == plan_->keys;
  plan_digest_ = digest_of(*plan_);
  Swarm::Setup setup{membership_.self(),    plan_->sources,
                     plan_->receivers,      Bits(layout_.count()),
                     Bits(layout_.count()), membership_.topology().wan ? kPerPeerWan : kPerPeer};
  setup.here.set_all();  // a receiver can send every piece that it does not lack
  lacked_bytes_ = done_bytes_ = 0;
  for (const uint32_t piece : layout_.pieces_of(wanted_keys_)) {
    setup.wanted.set(piece);
    if (!keeps || !kept_->here.test(piece)) setup.here.reset(piece);
    lacked_bytes_ += layout_.bytes(piece);
    if (setup.here.test(piece)) done_bytes_ += layout_.bytes(piece);
  }
  logged_done_ = done_bytes_;
  next_line_ = context_.after(kLineEvery);
  reported_ = context_.now;
  swarm_ = Swarm(std::move(setup));
  manifest_here_ = !receives() || layout_.part_count() == 0 || (keeps && kept_->manifest);
  kept_.reset();
  dropped_.clear();
  std::erase_if(next_sequence_, [this](const auto& at) { return !membership_.rank_of(at.first); });
  if (receives()) fetching_ = handle_;
  context_.emit(BeginPieces{handle_, *plan_, keeps, receives()});
  serve_waiting();
  if (!receives()) return;
  say_if_complete();
  fail_if_lost();
  ask();
}

// ---- Requests ----

uint64_t StateSync::digest_of(const protocol::SyncPlan& plan) {
  std::string all = std::to_string(plan.number) + " " + std::to_string(plan.revision) + " " +
                    std::to_string(protocol::state_hash(plan.entries));
  for (const uint32_t key : plan.keys) append_number(all += ' ', key);
  return tag_id(all).value;
}

uint64_t StateSync::digest_of(uint64_t plan_digest, uint32_t what) {
  return tag_id(std::to_string(plan_digest) + " " + std::to_string(what)).value;
}

uint64_t StateSync::bytes_of(uint32_t what) const {
  if (is_piece(what)) return layout_.bytes(what & ~kSpare);
  if (what == kManifest) return uint64_t{layout_.part_count()} * sizeof(uint64_t);
  return swarm_.here().words() * sizeof(uint64_t);
}

OpKey StateSync::key_of(PeerId source, PeerId destination, uint32_t sequence) const {
  return {reserved_tag("state " + text(source) + " " + text(destination)), sequence};
}

ring::Task StateSync::task_of(OpKey key, PeerId source, PeerId destination, uint32_t what) const {
  ring::Task task;
  task.epoch = membership_.epoch();
  task.op = key;
  task.digest = digest(what);
  task.handle = handle_;
  task.shape.pattern = ring::Pattern::kTransfer;
  task.shape.world = 2;
  task.shape.wan = membership_.topology().wan;
  task.shape.yields = true;
  task.shape.count = bytes_of(what);
  task.shape.block_bytes = {task.shape.count};
  const bool receives = destination == membership_.self();
  task.shape.rank = receives ? 1 : 0;
  (receives ? task.upstream : task.downstream) = receives ? source : destination;
  task.pulled = true;
  task.keep = receives && is_piece(what);  // its bytes are counted while they come
  task.what = what;
  return task;
}

void StateSync::ask() {
  if (!runs() || !receives() || said_) return;
  ask_for_manifest();
  ask_for_news();
  while (const std::optional<Swarm::Ask> next = swarm_.next())
    request(next->peer, next->piece | (next->spare ? kSpare : 0));
}

// Asks one source. Without sources, asks each receiver, since any of them may have the manifest.
void StateSync::ask_for_manifest() {
  if (manifest_here_ || asked_for_manifest_) return;
  std::vector<PeerId> from;
  if (plan_->sources.empty()) {
    for (const PeerId peer : plan_->receivers) {
      if (peer != membership_.self() && !swarm_.excluded(peer)) from.push_back(peer);
    }
  } else {
    const size_t rank = membership_.topology().rank;
    from.push_back(plan_->sources[rank % plan_->sources.size()]);
  }
  asked_for_manifest_ = from;
  for (const PeerId peer : from) request(peer, kManifest);
}

// Asks each other receiver for its pieces. The first answer comes at once, the next answer when
// that receiver has more pieces than in its last answer.
void StateSync::ask_for_news() {
  for (const PeerId peer : plan_->receivers) {
    if (peer == membership_.self() || swarm_.excluded(peer)) continue;
    if (!asked_for_news_.insert(peer).second) continue;
    request(peer, kHave);
  }
}

void StateSync::request(PeerId peer, uint32_t what) {
  const OpKey key = key_of(peer, membership_.self(), next_sequence_[peer]++);
  transfers_[{membership_.epoch(), key}] = {true, peer, what, State::kRunning};
  StartOp start;
  start.handle = handle_;
  start.task = task_of(key, peer, membership_.self(), what);
  start.dtype = DType::kBytes;
  start.piece = PieceOp{true, what, {}};
  context_.emit(std::move(start));
}

// A credit is a request only if its key is one of the keys for transfers from this peer to that
// peer.
void StateSync::requested(const PieceRequested& event) {
  const OpKey key = key_of(membership_.self(), event.peer, event.op.sequence);
  const bool now = event.epoch == membership_.epoch() && !membership_.ended() && !membership_.out();
  if (!now || key != event.op || !membership_.rank_of(event.peer)) return;
  const auto same = [&](const PieceRequested& waiting) { return waiting.op == event.op; };
  if (transfers_.contains({event.epoch, key}) ||
      std::any_of(waiting_.begin(), waiting_.end(), same))
    return;  // a duplicate
  const auto waits =
      std::count_if(waiting_.begin(), waiting_.end(),
                    [&](const PieceRequested& waiting) { return waiting.peer == event.peer; });
  const Served served = serve(event);
  if (served == Served::kNow) return;
  if (served == Served::kLater && static_cast<size_t>(waits) < protocol::kStateRequestsMax) {
    waiting_.push_back(event);
  } else {
    drop(event);
  }
}

StateSync::Served StateSync::serve(const PieceRequested& event) {
  if (event.epoch != membership_.epoch()) return Served::kNever;
  // The plan is to come, or transfers of another plan are being drained.
  if (!runs()) return Served::kLater;
  const bool spare = (event.what & kSpare) != 0;
  const uint32_t what = event.what;
  const uint32_t piece = what & ~kSpare;
  const bool asks_for_news = (what ^ kHave) <= layout_.count() + 1;
  const bool known = is_piece(what) ? piece < layout_.count() : asks_for_news || what == kManifest;
  if (!known || !contains(plan_->receivers, event.peer) || event.digest != digest(what))
    return Served::kNever;
  PieceOp op{false, what, {}};
  if (is_piece(what)) {
    if (!swarm_.here().test(piece) || (spare && sending_ > 0)) return Served::kLater;
    ++sending_;
  } else if (what == kManifest) {
    if (layout_.part_count() == 0) return Served::kNever;
    if (!manifest_here_) return Served::kLater;
  } else {
    const uint32_t knows = what & ~kHave;
    if (knows == swarm_.here_count() + 1) return Served::kLater;
    for (size_t index = 0; index < swarm_.here().words(); ++index)
      op.have.push_back(swarm_.here().word(index));
  }
  transfers_[{membership_.epoch(), event.op}] = {false, event.peer, what, State::kRunning};
  StartOp start;
  start.handle = handle_;
  start.task = task_of(event.op, membership_.self(), event.peer, what);
  start.dtype = DType::kBytes;
  start.piece = std::move(op);
  context_.emit(std::move(start));
  return Served::kNow;
}

void StateSync::serve_waiting() {
  std::vector<PieceRequested> later;
  std::vector<PieceRequested> all = std::move(waiting_);
  waiting_.clear();
  for (const PieceRequested& event : all) {
    const Served served = serve(event);
    if (served == Served::kLater) later.push_back(event);
    if (served == Served::kNever) drop(event);
  }
  waiting_ = std::move(later);
}

// The ring drops the credit of the request, and remembers that its number has ended. Consecutive
// numbers need no further memory. Only a peer that breaks the rules uses other numbers. So at most
// kOpsOpenMax requests of a peer are dropped in a plan. Further credits stay in the ring, which
// ends the link when there are too many of them.
void StateSync::drop(const PieceRequested& event) {
  if (++dropped_[event.peer] <= protocol::kOpsOpenMax) context_.emit(EndOp{event.op});
}

void StateSync::drop_waiting() {
  for (const PieceRequested& event : waiting_) drop(event);
  waiting_.clear();
}

// ---- Transfers ----

void StateSync::enter(Running& transfer, State next) {
  transfer.state = kTransferTransitions.step(transfer.state, next);
}

void StateSync::finish(Transfers::iterator at) {
  const OpKey key = at->first.second;
  const bool sent = !at->second.receives;
  enter(at->second, State::kFinished);
  transfers_.erase(at);
  if (sent) context_.emit(ReturnPiece{handle_, key});
}

bool StateSync::transferred(Epoch epoch, OpKey key) {
  const auto at = transfers_.find({epoch, key});
  if (at == transfers_.end()) return false;
  if (at->second.state == State::kDraining) return true;
  PCCL_ASSERT(runs() && epoch == membership_.epoch());
  context_.emit(EndOp{key, Ending::kCommitted});
  const Running transfer = at->second;
  finish(at);
  if (transfer.receives) {
    arrived(transfer, key);
  } else if (is_piece(transfer.what)) {
    PCCL_ASSERT(sending_ > 0);
    sent_bytes_ += layout_.bytes(transfer.what & ~kSpare);
    if (--sending_ == 0) serve_waiting();  // spare pieces may leave now
  }
  return true;
}

void StateSync::progressed(Epoch epoch, OpKey key) {
  const auto at = transfers_.find({epoch, key});
  if (at != transfers_.end() && at->second.state == State::kRunning) fetched_more();
}

void StateSync::arrived(const Running& transfer, OpKey key) {
  if (is_piece(transfer.what)) {
    const uint32_t piece = transfer.what & ~kSpare;
    swarm_.arrived(piece, transfer.peer);
    if (layout_.is_part(piece) && !manifest_here_) {
      unchecked_.emplace_back(key, transfer);
      return ask();
    }
  }
  check_later(transfer, key);
  ask();
}

void StateSync::check_later(const Running& transfer, OpKey key) {
  ++checking_;
  context_.emit(CheckPiece{handle_, plans_, key, transfer.peer, transfer.what});
}

bool StateSync::drained(Epoch epoch, OpKey key) {
  const auto at = transfers_.find({epoch, key});
  if (at == transfers_.end()) return false;
  PCCL_ASSERT(at->second.state == State::kDraining);
  finish(at);
  start_when_clear();
  return true;
}

bool StateSync::failed(Epoch epoch, OpKey key, const Status& why) {
  const auto at = transfers_.find({epoch, key});
  if (at == transfers_.end()) return false;
  PCCL_ASSERT(!why.ok());
  if (at->second.state == State::kRunning) say_fetched(why.code, why.message);
  return true;
}

// ---- Checks ----

void StateSync::checked(const PieceChecked& event) {
  if (event.handle != handle_ || checking_ == 0) return;  // of a call that has ended
  --checking_;
  if (!started_ || event.plan != plans_) return checked_old(event);
  if (said_ || stopped_) return;
  if (!event.status.ok()) return refuse(event);
  if (is_piece(event.what)) return checked_piece(event);
  if (event.what == kManifest) return checked_manifest(event);
  Bits has(layout_.count());
  PCCL_ASSERT(event.have.size() == has.words());
  for (uint32_t piece = 0; piece < has.size(); ++piece) {
    if ((event.have[piece / 64] >> (piece % 64)) & 1) has.set(piece);
  }
  swarm_.has(event.peer, has);
  if (!swarm_.complete() && !swarm_.excluded(event.peer))
    request(event.peer, kHave | static_cast<uint32_t>(has.count() + 1));
  fail_if_lost();
  ask();
}

void StateSync::checked_old(const PieceChecked& event) {
  if (kept_ && kept_->number == event.plan && event.status.ok()) {
    if (is_piece(event.what)) kept_->here.set(event.what & ~kSpare);
    if (event.what == kManifest) kept_->manifest = true;
  }
  start_when_clear();
}

void StateSync::checked_piece(const PieceChecked& event) {
  swarm_.verified(event.what & ~kSpare);
  done_bytes_ += layout_.bytes(event.what & ~kSpare);
  serve_waiting();
  say_if_complete();
  ask();
  tell_progress();
  fetched_more();
}

void StateSync::checked_manifest(const PieceChecked&) {
  if (manifest_here_) return;
  manifest_here_ = true;
  serve_waiting();
  for (const auto& [key, transfer] : std::exchange(unchecked_, {})) check_later(transfer, key);
  ask();
}

// A source that sends something wrong has changed its tensors during the call, so the members do
// not agree. A receiver may have been wrong from the beginning: the others continue without it.
void StateSync::refuse(const PieceChecked& event) {
  const auto rank = membership_.rank_of(event.peer);
  const std::string from =
      "rank " + (rank ? std::to_string(*rank) : "?") + " (peer " + text(event.peer) + ")";
  const bool may_continue =
      event.status.code == Code::kSharedState && !swarm_.is_source(event.peer);
  if (!may_continue) return say_fetched(event.status.code, event.status.message + ", from " + from);
  context_.note(
      LogLevel::kWarning, LogEvent::kStateRefused,
      event.status.message + ", from " + from + ": this process takes nothing more from it");
  if (is_piece(event.what)) swarm_.refused(event.what & ~kSpare, event.peer);
  swarm_.exclude(event.peer);
  fail_if_lost();
  ask();
}

std::string StateSync::names_of(const std::vector<uint32_t>& pieces) const {
  std::set<uint32_t> keys;
  for (const uint32_t piece : pieces) {
    for (const PieceLayout::Segment& segment : layout_.segments(piece)) keys.insert(segment.key);
  }
  std::string names;
  size_t named = 0;
  for (const uint32_t key : keys) {
    if (named++ == kKeysNamedMax) break;
    names += (names.empty() ? "\"" : ", \"") + plan_->entries[key].key + "\"";
  }
  if (keys.size() <= kKeysNamedMax) return names;
  return names + " and " + std::to_string(keys.size() - kKeysNamedMax) + " more";
}

void StateSync::fail_if_lost() {
  if (said_ || swarm_.complete()) return;
  const std::vector<uint32_t> lost = swarm_.lost();
  if (lost.empty()) return;
  const std::string had = plan_->gone.empty() ? "nobody sends them rightly" : plan_->gone;
  say_fetched(Code::kSharedState, "no peer that is left has all of " + names_of(lost) + ": " + had);
}

void StateSync::say_if_complete() {
  if (said_ || !swarm_.complete()) return;
  verified_ = true;
  say_fetched(Code::kOk, "");
}

// A transfer that fails here fails the call for all members, whether this peer sends or receives;
// but the failure of a newcomer costs only its own membership.
void StateSync::say_fetched(Code code, std::string text) {
  if (said_) return;
  PCCL_ASSERT(plan_ && started_);
  if (code != Code::kOk) {
    text = "rank " + std::to_string(membership_.topology().rank) + " (peer " +
           pccl::text(membership_.self()) + "): " + text;
  }
  said_ = protocol::Fetched{plan_->number, code, std::move(text)};
  context_.send(*said_);
}

bool StateSync::give_up() {
  if (!runs() || said_) return false;
  const PeerId self = membership_.self();
  if (!contains(plan_->sources, self) && !contains(plan_->receivers, self)) return false;
  say_fetched(Code::kSystem, "it was interrupted, or a thread of it has failed");
  return true;
}

// ---- Progress ----

void StateSync::tell_progress() const {
  context_.emit(
      SyncProgress{handle_, done_bytes_, lacked_bytes_, static_cast<uint32_t>(swarm_.busy())});
}

// The interval between two reports to the master. It is short enough for first_call_timeout: if a
// newcomer reports no progress for that time, the master removes it.
Duration StateSync::report_every() const {
  return std::min(kLineEvery, context_.settings.first_call_timeout / 4);
}

// More of the missing state is here.
void StateSync::fetched_more() {
  if (said_ || next_report_ || !runs()) return;
  next_report_ = reported_ + report_every();
  report_if_due();
}

void StateSync::report_if_due() {
  if (!next_report_ || *next_report_ > context_.now) return;
  next_report_.reset();
  reported_ = context_.now;
  if (!said_) context_.send(protocol::Fetching{plan_->number});
}

void StateSync::on_time() {
  report_if_due();
  if (!next_line_ || *next_line_ > context_.now) return;
  log_progress();
  next_line_ = context_.after(kLineEvery);
}

std::optional<Instant> StateSync::deadline() const {
  return next_report_ && next_line_ ? std::min(*next_report_, *next_line_) : next_line_;
}

void StateSync::log_progress() {
  const auto mib = [](uint64_t bytes) { return std::to_string(bytes / kMiB) + " MiB"; };
  std::string line = "sync_shared_state: ";
  if (receives()) {
    line += "fetched " + mib(done_bytes_) + " of " + mib(lacked_bytes_) + ", " +
            mib(done_bytes_ - logged_done_) + "/s, from " + std::to_string(swarm_.busy()) +
            (swarm_.busy() == 1 ? " peer; " : " peers; ");
  }
  line += "sent " + mib(sent_bytes_) + ", " + mib(sent_bytes_ - logged_sent_) + "/s";
  context_.note(LogLevel::kInfo, LogEvent::kStateProgress, line);
  logged_done_ = done_bytes_;
  logged_sent_ = sent_bytes_;
}

// ---- The end ----

void StateSync::stop() {
  next_line_.reset();
  next_report_.reset();
  stopped_ = plan_.has_value();  // a plan that waits for earlier memory never starts
  drop_waiting();
  for (auto& [key, transfer] : transfers_) {
    if (transfer.state == State::kDraining) continue;
    enter(transfer, State::kDraining);
    context_.emit(EndOp{key.second});
  }
  sending_ = 0;
}

void StateSync::master_restarted() { may_be_replaced_ = plan_.has_value(); }

// The master may have answered before the epoch ended, and may announce the end first. Then the
// answer comes without another plan, and is about the entries that were fetched already.
void StateSync::reconfigure() {
  PCCL_ASSERT(!verified_ || plan_);
  const bool began = plan_ && started_ && receives();
  stop();
  if (began) {
    kept_ = Kept{plan_->revision, plan_->entries, plan_->keys, wanted_keys_,
                 swarm_.here(),   manifest_here_, verified_,   plans_};
  }
  forget_plan();
}

void StateSync::forget_plan() {
  plan_.reset();
  said_.reset();
  wanted_keys_.clear();
  asked_for_manifest_.reset();
  asked_for_news_.clear();
  unchecked_.clear();
  started_ = stopped_ = verified_ = may_be_replaced_ = manifest_here_ = false;
}

FinishJoint StateSync::settle(const Joint::OpenCall& call, const Status& status,
                              const protocol::Answer& answer) {
  PCCL_ASSERT(answer.kind == protocol::JointKind::kSyncSharedState && (!verified_ || plan_));
  stop();
  FinishJoint result;
  result.status = status;
  protocol::EntryList elected;
  if (status.ok() && verified_) {
    result.install = std::move(wanted_keys_);
    elected = plan_->entries;
  } else if (status.ok() && kept_ && kept_->complete && kept_->revision == answer.revision &&
             protocol::state_hash(kept_->entries) == answer.state_hash) {
    result.install = std::move(kept_->wanted);
    elected = kept_->entries;
  }
  if (status.ok()) {
    drift_watch_.synced(call.vote.offer, call.entries(), answer.revision, elected, result);
  }
  kept_.reset();
  sent_bytes_ = logged_sent_ = 0;
  checking_ = 0;  // the memory of this call is of no use any more
  forget_plan();
  return result;
}

void StateSync::repeat() const {
  if (said_) context_.send(*said_);
}

void StateSync::check() const {
  size_t sending = 0;
  for (const auto& [key, transfer] : transfers_) {
    PCCL_ASSERT(key.first <= membership_.epoch());
    if (transfer.state == State::kDraining) continue;
    PCCL_ASSERT(key.first == membership_.epoch() && runs());
    if (!transfer.receives && is_piece(transfer.what)) ++sending;
  }
  PCCL_ASSERT(sending == sending_);
  PCCL_ASSERT(plan_ || (!started_ && !stopped_));
  PCCL_ASSERT(waiting_.empty() || !membership_.ended());
  PCCL_ASSERT(!verified_ || (said_ && said_->code == Code::kOk));
  PCCL_ASSERT(plan_ || (!said_ && wanted_keys_.empty() && unchecked_.empty()));
  PCCL_ASSERT(!verified_ || swarm_.complete());
  PCCL_ASSERT(next_line_.has_value() == runs());
  PCCL_ASSERT(!next_report_ || runs());
  PCCL_ASSERT(!runs() || !receives() || fetching_ == handle_);
  if (started_) swarm_.check();
}

}  // namespace pccl::peer
