#include "csrc/peer/shell/control.h"

#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/net/address.h"
#include "csrc/net/token_channel.h"
#include "csrc/peer/arrange.h"
#include "csrc/peer/link_probe.h"
#include "csrc/peer/shell/telemetry_sample.h"
#include "csrc/protocol/state.h"
#include "csrc/ring/shell/data_plane.h"
#include "csrc/ring/shell/peer_thread.h"

namespace pccl::peer {
namespace {

constexpr size_t kHistoryMax = 100;

Status left() { return {Code::kInvalidState, "this process has left the run", {}}; }

}  // namespace

Control::Control(net::Endpoint master, Options options, link::DriverOptions data, TokenSource token,
                 const std::shared_ptr<ring::PeerThread>& thread,
                 std::function<void(const Topology&)> on_reconfigured)
    : master_(std::move(master)),
      options_(options),
      on_reconfigured_(std::move(on_reconfigured)),
      loop_({thread, &thread->loop}),
      core_(std::move(options)) {
  set_log_context({}, {});
  // The objects of the loop are created on the loop. Nothing is pushed before this.
  loop_.post([this, data = std::move(data), thread] {
    const auto on_event = [this](ring::DataEvent event) { on_data(std::move(event)); };
    const auto on_warning = [this](const std::string& text) { warn(text); };
    data_ = std::make_unique<ring::DataPlane>(
        data, ring::DataPlane::Callbacks{on_event, on_warning}, loop_,
        std::shared_ptr<memory::Pool>(thread, &thread->pool));
    timer_ = std::make_unique<net::Timer>(loop_.loop(), [this] {
      armed_.reset();
      push(Event{TimePassed{}});  // through the inbox, behind earlier input
    });
    outbox_timer_ = std::make_unique<net::Timer>(loop_.loop(), [this] { flush(); });
  });
  if (token.any()) watch_token(std::move(token));
}

const Status& Control::status() const {
  const bool watches = loop_.status().ok() && token_watch_ != nullptr;
  return watches ? token_watch_->status() : loop_.status();
}

Control::~Control() = default;

// The first token is number 1.
void Control::watch_token(TokenSource token) {
  PCCL_ASSERT(token.token != nullptr);
  tokens_[++token_count_] = token.token;
  if (token.path.empty()) return;
  const auto take = [this](std::shared_ptr<const Token> next) {
    push(std::function<void()>([this, next = std::move(next)] {
      tokens_[++token_count_] = next;
      step(TokenRead{token_count_});
    }));
  };
  token_watch_ = std::make_unique<TokenWatch>(
      std::move(token.path), std::move(token.token),
      TokenWatch::Callbacks{take, [this](const std::string& text) { warn(text); }});
}

// ---- The inbox ----

bool Control::push(Item item) {
  bool first = false;
  {
    const Lock lock(inbox_mutex_);
    if (closed_) return false;
    first = inbox_.empty();
    inbox_.push_back(std::move(item));
  }
  if (first) loop_.post([this] { take_items(); });  // without the lock, which the loop needs
  return true;
}

void Control::take_items() {
  loop_.assert_on_loop();
  if (data_ == nullptr) return;  // this peer has left: fail_what_is_left() takes them
  {
    const Lock lock(inbox_mutex_);
    taken_.swap(inbox_);
  }
  for (Item& item : taken_) std::visit([this](auto& what) { take(what); }, item);
  taken_.clear();
  finish_turn();
}

Handle Control::post(OpRequest request, ring::Memory memory, Completion completion) {
  Posted posted{std::move(request), std::move(memory), std::move(completion)};
  Lock lock(inbox_mutex_);
  if (closed_) {
    lock.unlock();
    posted.completion(left());
    return 0;
  }
  const Handle handle = posted.request.handle = ++handles_;
  const bool first = inbox_.empty();
  inbox_.emplace_back(std::move(posted));
  lock.unlock();
  if (first) loop_.post([this] { take_items(); });
  return handle;
}

void Control::staged(Handle handle, Status status) {
  push(Event{OpStaged{handle, std::move(status)}});
}

bool Control::join(std::shared_ptr<WaitingCall> call) {
  return push(Called{Event{JoinCalled{}}, std::move(call)});
}

bool Control::joint(JointCalled event, std::shared_ptr<WaitingCall> call) {
  return push(Called{Event{std::move(event)}, std::move(call)});
}

void Control::give_up(const std::shared_ptr<WaitingCall>& call) { push(GivenUp{call}); }
void Control::await(const std::shared_ptr<WaitingCall>& call) { push(Awaited{call}); }

void Control::concluded(Handle call) { push(Event{JointConcluded{call}}); }

std::optional<Topology> Control::ask_topology() {
  if (on_loop()) return std::nullopt;
  std::promise<std::optional<Topology>> answer;
  const bool accepted = push(std::function<void()>([&] {
    step(TopologyAsked{});
    answer.set_value(std::exchange(shown_, {}));
  }));
  return accepted ? answer.get_future().get() : std::nullopt;
}

void Control::take(Posted& posted) {
  operations_[posted.request.handle] = {std::move(posted.memory), std::move(posted.completion),
                                        describe(posted.request), monotonic_now()};
  step(OpCalled{std::move(posted.request)});
}

void Control::take(Called& called) {
  const Handle handle = ++handles_;
  const std::shared_ptr<WaitingCall> call = calls_[handle] = std::move(called.call);
  if (auto* join = std::get_if<JoinCalled>(&called.event)) join->handle = handle;
  if (auto* joint = std::get_if<JointCalled>(&called.event)) joint->handle = handle;
  step(called.event);
  if (call->given_up) step(JointGivenUp{handle});
}

void Control::take(GivenUp& given_up) {
  given_up.call->given_up = true;
  if (const Handle handle = handle_of(*given_up.call)) step(JointGivenUp{handle});
}

void Control::take(Awaited& awaited) {
  if (const Handle handle = handle_of(*awaited.call)) step(JointAwaited{handle});
}

Handle Control::handle_of(const WaitingCall& call) const {
  for (const auto& [handle, open] : calls_) {
    if (open.get() == &call) return handle;
  }
  return 0;
}

// ---- Stepping ----

void Control::step(const Event& event) {
  loop_.assert_on_loop();
  PCCL_ASSERT(effects_.empty());  // events that an effect causes go through the inbox
  core_.step(event, monotonic_now(), effects_);
  for (Effect& effect : effects_) std::visit([this](auto& what) { apply(what); }, effect);
  effects_.clear();
}

void Control::finish_turn() {
  loop_.assert_on_loop();
  flush_or_hold();
  const std::optional<Instant> deadline = core_.deadline();
  if (timer_ == nullptr || deadline == armed_) return;
  deadline ? timer_->arm(*deadline) : timer_->disarm();
  armed_ = deadline;
}

void Control::flush_or_hold() {
  if (outbox_.empty()) return;
  if (stream_ == nullptr || outbox_.due(monotonic_now())) return flush();
  if (!std::exchange(held_, true)) outbox_timer_->arm(*outbox_.deadline());
}

void Control::flush() {
  loop_.assert_on_loop();
  for (const protocol::Message& message : outbox_.take()) protocol::encode(message, out_);
  if (stream_ != nullptr && !out_.empty()) stream_->send(out_);
  out_.clear();
  if (std::exchange(held_, false)) outbox_timer_->disarm();
}

// ---- The connection to the master ----

void Control::apply(ConnectMaster& effect) {
  const Instant by = monotonic_now() + effect.at_most;
  connector_ = std::make_unique<net::Connector>(
      loop_.loop(), master_, effect.at_most,
      [this, by, token = effect.token](Result<net::Socket> socket) {
        connected(std::move(socket), by, token);
        finish_turn();
      });
}

void Control::connected(Result<net::Socket> socket, Instant by, uint32_t token) {
  loop_.assert_on_loop();
  if (!socket.ok()) {
    const bool refused = connector_->fault() == LinkFault::kRefused;
    return step(MasterClosed{socket.status(), refused});
  }
  const MasterConnected event{.elsewhere = !socket.value().is_loopback()};
  Result<net::Channel> made = channel(std::move(socket.value()), by, token);
  if (!made.ok()) return step(MasterClosed{made.status()});
  const bool encrypted = made.value().encrypted();
  const uint64_t id = ++stream_count_;
  const auto on_bytes = [this](std::span<const std::byte> bytes) { received(bytes); };
  // A damaged record does not come from the master: the network has a fault, or somebody is on the
  // path.
  const auto on_closed = [this, id](Status why) {
    if (why.code == Code::kProtocol) why.code = Code::kSystem;
    closed(id, why);
  };
  const auto on_established = [this, id, event] {
    if (stream_ == nullptr || id != stream_count_) return;  // the core has closed it
    step(event);
    finish_turn();
  };
  auto stream = std::make_unique<net::Stream>(
      loop_.loop(), std::move(made.value()),
      net::Stream::Callbacks{
          .on_bytes = on_bytes, .on_closed = on_closed, .on_established = on_established});
  stream_ = (streams_[id] = std::move(stream)).get();
  decoder_ = {};
  if (!encrypted) step(event);
}

Result<net::Channel> Control::channel(net::Socket socket, Instant by, uint32_t token) {
  const Token* shown = tokens_.empty() ? nullptr : tokens_.at(token).get();
  token_id_ = shown == nullptr ? "" : shown->id;
  return net::channel_to_master(std::move(socket), master_, shown, options_.insecure, by);
}

void Control::received(std::span<const std::byte> bytes) {
  loop_.assert_on_loop();
  decoder_.feed(bytes);
  while (stream_ != nullptr) {  // until the core closes it
    Result<std::optional<protocol::Message>> next = decoder_.next();
    if (!next.ok()) {
      closed(stream_count_, next.status());
      break;
    }
    if (!next.value()) break;
    step(MasterSent{std::move(*next.value())});
  }
  finish_turn();
}

void Control::closed(uint64_t stream, const Status& why) {
  loop_.assert_on_loop();
  const bool current = stream_ != nullptr && stream == stream_count_;
  const Status reason =
      current ? net::explain_handshake(why, stream_->refusal(), master_, token_id_) : why;
  if (current) stream_ = nullptr;
  streams_.erase(stream);
  if (current) step(MasterClosed{reason});
  notice_end();
  finish_turn();
}

void Control::apply(CloseMaster&) {
  flush();
  connector_.reset();
  if (stream_ != nullptr) stream_->close_after_flush();
  stream_ = nullptr;
}

void Control::apply(ForgetTokens& effect) {
  tokens_.erase(tokens_.begin(), tokens_.lower_bound(effect.before));
}

void Control::apply(SendMaster& effect) { outbox_.add(std::move(effect.message), monotonic_now()); }

// ---- The data plane ----

// Events of the data plane go through the inbox, because they may come from inside a step.
void Control::on_data(ring::DataEvent event) {
  loop_.assert_on_loop();
  if (const auto* changed = std::get_if<LinkChanged>(&event)) {
    const protocol::LinkReport& report = changed->report;
    const bool up = report.state == protocol::LinkState::kUp;
    up ? static_cast<void>(links_up_.insert(report.peer))
       : static_cast<void>(links_up_.erase(report.peer));
  }
  std::visit([this](auto& what) { push(Event{std::move(what)}); }, event);
  notice_end();
}

void Control::apply(Listen& effect) {
  data_->links().listen(effect.loopback_only ? net::kLoopback : "");
}

void Control::apply(AcceptAs& effect) {
  self_ = effect.self;
  data_->links().accept_as({.self = effect.self,
                            .run_id = effect.run_id,
                            .version = effect.version,
                            .accepting = effect.accepting,
                            .peer_timeout = effect.peer_timeout});
}

void Control::apply(AcceptWith& effect) { data_->links().step(link::AcceptWith{effect.key}); }

void Control::apply(DialPeer& effect) {
  const protocol::Dial& dial = effect.dial;
  std::vector<Endpoint> at = {{dial.host.empty() ? master_.host : dial.host, dial.port}};
  at.insert(at.end(), dial.others.begin(), dial.others.end());
  data_->links().step(link::Dial{dial.peer, std::move(at), dial.dead_serial, dial.credential});
}

void Control::apply(ForgetPeer& effect) { data_->links().step(link::Forget{effect.peer}); }

void Control::apply(OpenLanes& effect) {
  data_->links().step(link::LanesWanted{effect.peer, effect.measured});
}

void Control::apply(SampleLink& effect) { push(Event{data_->sample(effect.peer)}); }

void Control::apply(SampleTelemetry& effect) {
  std::vector<protocol::Scalar> scalars;
  {
    const Lock lock(report_mutex_);
    scalars = scalars_;
  }
  const ring::DataCounters data = data_->counters();
  const uint64_t moved = data.engine.bytes_sent + data.engine.bytes_received;
  const bool moving = moved != std::exchange(moved_at_sample_, moved);
  const TimeTotals before = std::exchange(time_at_sample_, waits_->totals(monotonic_now(), moving));
  push(Event{TelemetrySampled{
      telemetry_sample(time_at_sample_, before, data, effect.links, std::move(scalars))}});
}

Status Control::report(const std::vector<protocol::Scalar>& scalars) {
  const Lock lock(report_mutex_);
  std::vector<protocol::Scalar> all = scalars_;
  for (const protocol::Scalar& scalar : scalars) {
    const auto at = std::find_if(all.begin(), all.end(), [&scalar](const protocol::Scalar& one) {
      return one.name == scalar.name;
    });
    at == all.end() ? all.push_back(scalar) : void(at->value = scalar.value);
  }
  if (all.size() > protocol::kScalarsMax) {
    return {Code::kInvalidArgument,
            "report() has " + std::to_string(all.size()) + " numbers by now, and at most " +
                std::to_string(protocol::kScalarsMax) + " are shown: use fewer names",
            {}};
  }
  scalars_ = std::move(all);
  return {};
}

void Control::apply(SayDone& effect) { data_->engine().done(effect.op); }

void Control::apply(BeginEpoch& effect) {
  set_log_context(effect.rank, effect.epoch);
  data_->begin_epoch(effect.epoch, std::move(effect.peers), std::move(effect.neighbours));
}

void Control::apply(StartOp& effect) {
  if (effect.piece) return start_transfer(effect);
  const ring::Task& task = effect.task;
  Result<ring::Memory> memory = effect.probe ? probe_memory(task)
                                             : arrange(operations_.at(effect.handle).memory, task,
                                                       effect.start, effect.order);
  if (!memory.ok()) {
    unposted_[task.op] = {task.epoch};
    push(Event{OpFailed{task.epoch, task.op, memory.status()}});
    return;
  }
  post_to_ring(effect, std::move(memory.value()));
}

void Control::post_to_ring(StartOp& start, ring::Memory memory) {
  memory.dtype = start.dtype;
  memory.reduce = start.reduce;
  memory.contributors = start.contributors;
  data_->engine().post(std::move(start.task), std::move(memory));
}

// The caller's thread lends the entries, since it may have to wait for a device. Until then, for
// the other end, this peer is one that starts the transfer late.
void Control::start_transfer(StartOp& start) {
  const std::shared_ptr<WaitingCall> call = calls_.at(start.handle);
  const uint64_t number = ++starts_;
  unposted_[start.task.op] = {start.task.epoch, number};
  call->waiter.work([this, call, start = std::move(start), number] {
    Result<std::span<std::byte>> span = std::span<std::byte>();
    const Status failure = caught([&] { span = call->entries->lend(start.task.op, *start.piece); });
    if (!failure.ok()) span = failure;
    push(std::function<void()>(
        [this, start, number, span]() mutable { lent(start, number, span); }));
  });
}

void Control::lent(StartOp& start, uint64_t number, const Result<std::span<std::byte>>& span) {
  loop_.assert_on_loop();
  if (data_ == nullptr) return;  // this peer has left
  const auto at = unposted_.find(start.task.op);
  if (at == unposted_.end() || at->second.number != number) return;  // it has ended
  if (!span.ok()) return step(OpFailed{start.task.epoch, start.task.op, span.status()});
  unposted_.erase(at);
  ring::Memory memory;
  memory.spans = {span.value()};
  memory.save = false;
  post_to_ring(start, std::move(memory));
}

void Control::apply(EndOp& effect) {
  const auto unposted = unposted_.find(effect.op);
  if (unposted == unposted_.end()) return data_->engine().end(effect);
  push(Event{OpDrained{unposted->second.epoch, effect.op}});
  unposted_.erase(unposted);
}

// ---- The application ----

void Control::apply(BeginPieces& effect) {
  const std::shared_ptr<WaitingCall> call = calls_.at(effect.handle);
  call->waiter.work([call, plan = std::move(effect)] {
    call->entries->begin(plan);
    if (!call->on_decided) return;
    call->on_decided({plan.receives, plan.plan.revision, protocol::state_hash(plan.plan.entries)});
  });
}

void Control::apply(CheckPiece& effect) {
  const std::shared_ptr<WaitingCall> call = calls_.at(effect.handle);
  call->waiter.work([this, call, effect] {
    SharedEntries::Checked checked;
    const Status failure = caught([&] { checked = call->entries->check(effect.op, effect.what); });
    if (!failure.ok()) checked.status = failure;
    push(Event{PieceChecked{effect.handle, effect.plan, effect.peer, effect.what,
                            std::move(checked.status), std::move(checked.have)}});
  });
}

void Control::apply(SyncProgress& effect) {
  const std::shared_ptr<WaitingCall> call = calls_.at(effect.handle);
  if (call->on_progress) call->waiter.tell([call, effect] { call->on_progress(effect); });
}

void Control::apply(ReturnPiece& effect) {
  const std::shared_ptr<WaitingCall> call = calls_.at(effect.handle);
  call->waiter.work([call, op = effect.op] { call->entries->take_back(op); });
}

void Control::apply(FinishOp& effect) {
  const auto at = operations_.find(effect.handle);
  PCCL_ASSERT(at != operations_.end());
  LentOperation operation = std::move(at->second);
  operations_.erase(at);
  if (history_.size() == kHistoryMax) history_.pop_front();
  operation.info.world_size = static_cast<uint32_t>(topology_.members.size());
  history_.push_back({std::move(operation.info), effect.op, effect.status.code,
                      monotonic_now() - operation.posted_at, effect.committing});
  if (!effect.status.ok()) waits_->failed(effect.handle);
  OpResult result(std::move(effect.status), std::move(effect.parts));
  result.ended_before_call = effect.ended_before_call;
  result.source = effect.source;
  result.epoch = effect.epoch;
  result.op = effect.op;
  operation.completion(std::move(result));
}

void Control::apply(FinishJoint& effect) {
  const auto at = calls_.find(effect.handle);
  PCCL_ASSERT(at != calls_.end());
  if (effect.topology) topology_ = *effect.topology;
  const std::shared_ptr<WaitingCall> call = std::move(at->second);
  calls_.erase(at);
  call->waiter.finish(std::move(effect));
}

void Control::apply(Reconfigured& effect) {
  topology_ = effect.topology;
  on_reconfigured_(effect.topology);
}

void Control::apply(Log& effect) { log_.log(effect.level, effect.event, effect.text); }

void Control::warn(const std::string& text) const {
  log_.log(LogLevel::kWarning, LogEvent::kOther, text);
}

void Control::set_log_context(std::optional<uint32_t> rank, Epoch epoch) {
  log_.set({options_.run, options_.group.value, options_.name, rank, epoch ? text(epoch) : ""});
}

void Control::apply(Gone& effect) {
  gone_ = true;
  lingers_ = effect.lingers;
  notice_end();
}

// The operation as the core describes it. Root and receiver are unset if `request.root` is not a
// rank of the topology.
protocol::OpInfo Control::describe(const OpRequest& request) const {
  protocol::OpInfo info;
  info.kind = request.kind;
  info.dtype = request.dtype;
  info.reduce = request.reduce;
  info.count = request.count;
  info.tag = request.tag;
  info.format = request.format;
  const auto rank = static_cast<size_t>(request.root);
  if (request.root < 0 || rank >= topology_.members.size()) return info;
  const bool sends = request.kind == protocol::OpKind::kSend;
  info.root = sends ? self_ : topology_.members[rank].peer;
  info.receiver = sends ? topology_.members[rank].peer : self_;
  return info;
}

Info Control::info() {
  const auto look = [this] {
    Info info;
    info.self = self_;
    info.run = options_.run;
    info.broken = !core_.broken().ok();
    info.broken_by = core_.broken().message;
    info.options = options_;
    info.settings = core_.settings();
    for (const Past& past : history_) {
      info.history.push_back({text(past.info) + " " + text(past.info, past.key), text(past.outcome),
                              past.info.count * element_bytes(past.info.dtype),
                              to_seconds(past.took), to_seconds(past.committing)});
    }
    info.time = waits_->totals(monotonic_now(), false);
    if (data_ != nullptr) info.data = data_->counters();  // null: this peer has left
    return info;
  };
  if (on_loop()) return look();
  std::promise<Info> promise;
  const bool accepted = push(std::function<void()>([&] { promise.set_value(look()); }));
  PCCL_ASSERT(accepted);
  return promise.get_future().get();
}

// ---- The end ----

// A peer that lingers keeps its links until the others have closed them.
void Control::notice_end() {
  loop_.assert_on_loop();
  if (!gone_ || !streams_.empty() || (lingers_ && !links_up_.empty())) return;
  {
    const Lock lock(end_mutex_);
    gone_and_said_ = true;
  }
  end_changed_.notify_all();
}

void Control::end(Duration at_most) {
  PCCL_ASSERT(!on_loop());
  const bool first = push(Event{LeaveCalled{}});
  PCCL_ASSERT(first);
  {
    Lock lock(end_mutex_);
    const Instant deadline = monotonic_now() + at_most;
    while (!gone_and_said_ && loop_.status().ok()) {
      if (!end_changed_.wait_until(lock, deadline)) break;
    }
  }
  {
    const Lock lock(inbox_mutex_);
    closed_ = true;
  }
  token_watch_.reset();
  loop_.end([this] {
    close_inputs();
    fail_what_is_left();
  });
}

// After this, no event arrives.
void Control::close_inputs() {
  loop_.assert_on_loop();
  timer_.reset();
  outbox_timer_.reset();
  held_ = false;
  connector_.reset();
  stream_ = nullptr;
  streams_.clear();
  data_.reset();
}

// Once the data plane is gone, nothing touches borrowed tensors, and open calls can be returned.
void Control::fail_what_is_left() {
  loop_.assert_on_loop();
  std::vector<Item> late;
  {
    const Lock lock(inbox_mutex_);
    late.swap(inbox_);
  }
  for (Item& item : late) {
    if (auto* posted = std::get_if<Posted>(&item)) posted->completion(left());
    if (auto* task = std::get_if<std::function<void()>>(&item)) (*task)();
    if (auto* called = std::get_if<Called>(&item)) calls_[++handles_] = called->call;
  }
  for (auto& [handle, operation] : operations_) operation.completion(left());
  operations_.clear();
  for (const auto& [handle, call] : calls_) {
    FinishJoint result;
    result.status = left();
    call->waiter.finish(std::move(result));
  }
  calls_.clear();
}

}  // namespace pccl::peer
