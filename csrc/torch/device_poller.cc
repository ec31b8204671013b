#include "csrc/torch/device_poller.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "csrc/torch/completion_executor.h"
#include "csrc/torch/device.h"
#include "csrc/torch/errors.h"

namespace pccl::torch_layer {
namespace {

using Progress = DevicePoller::Watched::Progress;

// The time of busy polling after a change. Small copies take some 20 us, a wake-up takes longer.
constexpr Duration kBusyPoll = std::chrono::microseconds(200);
constexpr Duration kPauseMin = std::chrono::microseconds(50);
constexpr Duration kPauseMax = std::chrono::milliseconds(1);

// Never destroyed, and replaced in a forked child, for the reasons in completion_executor.cc.
DevicePoller* g_poller = new DevicePoller;
[[maybe_unused]] const int g_poller_registered =
    pthread_atfork(nullptr, nullptr, [] { g_poller = new DevicePoller; });

}  // namespace

DevicePoller& DevicePoller::get() { return *g_poller; }

void DevicePoller::start() {
  const Lock lock(mutex_);
  if (std::exchange(started_, true)) return;
  try {
    std::thread([this] { work(); }).detach();
  } catch (const std::system_error& error) {
    started_ = false;
    raise({Code::kSystem, std::string("no thread for device tensors: ") + error.what(), {}});
  }
}

void DevicePoller::watch(std::shared_ptr<Watched> what) {
  const Lock lock(mutex_);
  fresh_.push_back(std::move(what));
  quiet_now_ = false;
  woken_ = true;
  wake_.notify_one();
}

void DevicePoller::wake() {
  const Lock lock(mutex_);
  woken_ = true;
  wake_.notify_one();
}

void DevicePoller::end(Duration at_most) {
  Lock lock(mutex_);
  if (!started_) return;
  const Instant deadline = monotonic_now() + at_most;
  while (!quiet_now_) {
    if (!quiet_.wait_until(lock, deadline)) break;
  }
  ended_ = true;
}

void DevicePoller::work() {
  pthread_setname_np(pthread_self(), "pccl-devices");
  const LeaveCapturesAlone guard;
  Duration pause = kPauseMin;
  Instant busy_until = monotonic_now();
  Lock lock(mutex_);
  while (!ended_) {
    for (auto& one : fresh_) watched_.push_back(std::move(one));
    fresh_.clear();
    const bool told = std::exchange(woken_, false);
    lock.unlock();
    const Seen seen = poll_all();
    if (told || seen.changed) {
      busy_until = monotonic_now() + kBusyPoll;
      pause = kPauseMin;
    }
    const bool busy = monotonic_now() < busy_until;
    if (busy) std::this_thread::yield();
    lock.lock();
    const bool empty = watched_.empty() && fresh_.empty();
    if (empty) {
      quiet_now_ = true;
      quiet_.notify_all();
    }
    if (empty || (seen.waits && !busy)) {
      while (!woken_) wake_.wait(lock);
    } else if (!busy) {
      const Instant next = monotonic_now() + pause;
      while (!woken_) {
        if (!wake_.wait_until(lock, next)) break;
      }
      pause = std::min(2 * pause, kPauseMax);
    }
  }
}

DevicePoller::Seen DevicePoller::poll_all() {
  Seen seen;
  for (auto& one : watched_) {
    const Progress progress = one->poll();
    seen.waits &= progress == Progress::kWaits || progress == Progress::kOver;
    seen.changed |= progress == Progress::kSome || progress == Progress::kOver;
    if (progress != Progress::kOver) continue;
    CompletionExecutor::get().run([last = std::move(one)] { last->release(); });
  }
  std::erase(watched_, nullptr);
  return seen;
}

}  // namespace pccl::torch_layer
