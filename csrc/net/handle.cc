#include "csrc/net/handle.h"

#include <sched.h>

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::net {

void Handle::opened(uv_handle_t* raw) {
  PCCL_ASSERT(raw_ == nullptr && raw->loop == &loop_->uv);
  raw_ = raw;
  raw_->data = this;
  self_ = shared_from_this();
  ++loop_->handle_count;
}

void Handle::close() {
  if (closed_ || loop_->orphaned()) return;
  loop_->assert_on_loop();
  closed_ = true;
  uv_close(raw_, &Handle::on_closed);
}

void Handle::on_closed(uv_handle_t* raw) {
  const std::shared_ptr<Handle> self = std::move(static_cast<Handle*>(raw->data)->self_);
  self->release();
  self->loop_->handle_closed();
}

// ---- Watcher ----------------------------------------------------------------------------------

std::shared_ptr<Watcher> Watcher::open(const std::shared_ptr<Loop::Impl>& loop, int fd,
                                       Callback callback) {
  loop->assert_on_loop();
  std::shared_ptr<Watcher> watcher(new Watcher(loop));
  watcher->callback_ = std::move(callback);
  PCCL_ASSERT(uv_poll_init(&loop->uv, &watcher->poll_, fd) == 0);
  watcher->opened(reinterpret_cast<uv_handle_t*>(&watcher->poll_));
  return watcher;
}

void Watcher::watch(bool readable, bool writable) {
  const int events = (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0);
  if (closed() || events == events_) return;
  loop_->assert_on_loop();
  events_ = events;
  PCCL_ASSERT(uv_poll_start(&poll_, events, &Watcher::on_events) == 0);
}

void Watcher::on_events(uv_poll_t* raw, int status, int events) {
  auto* watcher = static_cast<Watcher*>(static_cast<Handle*>(raw->data));
  if (status < 0) {
    watcher->events_ = 0;  // libuv has stopped the handle
    events = UV_READABLE | UV_WRITABLE;
  }
  Loop::Impl& loop = *watcher->loop_;
  watcher->callback_((events & UV_READABLE) != 0, (events & UV_WRITABLE) != 0);
  loop.after_callback();
}

// ---- Alarm ------------------------------------------------------------------------------------

std::shared_ptr<Alarm> Alarm::open(const std::shared_ptr<Loop::Impl>& loop,
                                   std::function<void()> callback) {
  loop->assert_on_loop();
  std::shared_ptr<Alarm> alarm(new Alarm(loop));
  alarm->callback_ = std::move(callback);
  PCCL_ASSERT(uv_timer_init(&loop->uv, &alarm->timer_) == 0);
  alarm->opened(reinterpret_cast<uv_handle_t*>(&alarm->timer_));
  return alarm;
}

void Alarm::arm(Instant at) {
  if (closed()) return;
  loop_->assert_on_loop();
  at_ = at;
  constexpr Duration kTick = std::chrono::milliseconds(1);
  const Duration wait =
      std::clamp<Duration>(at - monotonic_now(), Duration{0}, std::chrono::hours(24));
  uv_update_time(&loop_->uv);
  PCCL_ASSERT(uv_timer_start(&timer_, &Alarm::on_time,
                             static_cast<uint64_t>((wait + kTick - Duration{1}) / kTick), 0) == 0);
}

void Alarm::disarm() {
  if (closed()) return;
  loop_->assert_on_loop();
  uv_timer_stop(&timer_);
}

void Alarm::on_time(uv_timer_t* raw) {
  auto* alarm = static_cast<Alarm*>(static_cast<Handle*>(raw->data));
  if (monotonic_now() < alarm->at_)
    return alarm->arm(alarm->at_);  // libuv counts whole milliseconds
  Loop::Impl& loop = *alarm->loop_;
  alarm->callback_();
  loop.after_callback();
}

// ---- BusyPoll ---------------------------------------------------------------------------------

std::shared_ptr<BusyPoll> BusyPoll::open(const std::shared_ptr<Loop::Impl>& loop) {
  loop->assert_on_loop();
  std::shared_ptr<BusyPoll> busy_poll(new BusyPoll(loop));
  PCCL_ASSERT(uv_idle_init(&loop->uv, &busy_poll->idle_) == 0);
  busy_poll->opened(reinterpret_cast<uv_handle_t*>(&busy_poll->idle_));
  return busy_poll;
}

// While an idle handle is active, libuv polls without waiting.
void BusyPoll::keep(Duration length) {
  if (closed()) return;
  loop_->assert_on_loop();
  const Instant now = monotonic_now();
  if (may_migrate_ && share_.waited(now, thread_ran())) migrate();
  until_ = now + length;
  PCCL_ASSERT(uv_idle_start(&idle_, &BusyPoll::on_turn) == 0);
}

void BusyPoll::on_turn(uv_idle_t* raw) {
  auto* busy_poll = static_cast<BusyPoll*>(static_cast<Handle*>(raw->data));
  if (monotonic_now() >= busy_poll->until_) {
    uv_idle_stop(raw);
  } else {
    sched_yield();
  }
}

}  // namespace pccl::net
