// Member: one DataPlane on a loop of its own, and a record of its events. Its methods may be called
// from any thread except that loop.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/ring/shell/data_plane.h"
#include "csrc/ring/shell/peer_thread.h"
#include "tests/cpp/net/net_test.h"
#include "tests/cpp/ring/handlers.h"
#include "tests/cpp/ring/raw_peer.h"

namespace pccl::ring {

inline PeerId id(uint32_t rank) { return {rank + 1}; }

class Member {
 public:
  // Runs `what` on the loop and returns its result.
  template <typename F>
  auto on_loop(F what) {
    return net::on(thread_->loop, std::move(what));
  }

  explicit Member(uint32_t rank, const link::DriverOptions& options = {},
                  const std::optional<protocol::AcceptingKey>& accepting = {},
                  bool identified = true) {
    on_loop([&] {
      data_ = std::make_unique<DataPlane>(
          options, DataPlane::Callbacks{record(), [](const std::string&) {}}, loop_,
          std::shared_ptr<memory::Pool>(thread_, &thread_->pool));
      data_->links().listen("127.0.0.1");
    });
    if (identified) identify(rank, accepting);
    EXPECT_TRUE(wait([&] { return port_.has_value(); }));
  }
  ~Member() { destroy(); }

  void identify(uint32_t rank, const std::optional<protocol::AcceptingKey>& accepting = {}) {
    on_loop([&] {
      data_->links().accept_as({.self = id(rank), .run_id = kRun, .accepting = accepting});
    });
  }
  void destroy() {
    loop_.end([this] { data_.reset(); });
  }
  uint16_t port() { return port_->value(); }
  const Result<uint16_t>& listening() { return *port_; }

  void dial(PeerId peer, const std::vector<Endpoint>& at, uint32_t dead_serial = 0,
            const std::optional<protocol::LaneCredential>& credential = {}) {
    on_loop([&] { data_->links().step(link::Dial{peer, at, dead_serial, credential}); });
  }
  void forget(PeerId peer) {
    on_loop([&] { data_->links().step(link::Forget{peer}); });
  }
  void open_lanes(PeerId peer) {
    on_loop([&] { data_->links().step(link::LanesWanted{peer}); });
  }
  void begin_epoch(const std::vector<PeerId>& peers, const std::vector<PeerId>& neighbours) {
    on_loop([&] { data_->begin_epoch(Epoch{1}, peers, neighbours); });
  }
  void post(const Task& task, const Memory& memory) {
    on_loop([&] { data_->engine().post(task, memory); });
  }
  void end(const OpEnded& end) {
    on_loop([&] { data_->engine().end(end); });
  }
  LinkSample sample(PeerId peer) {
    return on_loop([&] { return data_->sample(peer); });
  }
  DataCounters counters() {
    return on_loop([&] { return data_->counters(); });
  }

  bool wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), condition);
  }
  // Waits for a report that `peer` is unreachable; returns its fault.
  LinkFault fault(PeerId peer) {
    std::optional<LinkFault> found;
    wait([&] {
      for (const protocol::LinkReport& report : reports_) {
        if (report.peer == peer && report.state == protocol::LinkState::kUnreachable)
          found = report.fault;
      }
      return found.has_value();
    });
    EXPECT_TRUE(found.has_value());
    return found.value_or(LinkFault::kOther);
  }
  // Waits for `count` reports of `state` about `peer`; returns the text of the last one, or "none".
  std::string reported(PeerId peer, protocol::LinkState state, size_t count = 1) {
    std::string text = "none";
    wait([&] {
      size_t seen = 0;
      for (const protocol::LinkReport& report : reports_) {
        if (report.peer != peer || report.state != state) continue;
        text = report.text;
        ++seen;
      }
      return seen >= count;
    });
    return text;
  }
  size_t report_count() {
    const std::lock_guard lock(mutex_);
    return reports_.size();
  }
  bool transferred(OpKey op) {
    return wait([&] { return transferred_[op] > 0; });
  }
  bool drained(OpKey op) {
    return wait([&] { return drained_[op] > 0; });
  }

 private:
  std::function<void(DataEvent)> record() {
    return handlers(
        [this](const link::Listening& event) { note([&] { port_ = event.port; }); },
        [this](const link::LinkChanged& event) { note([&] { reports_.push_back(event.report); }); },
        [this](const OpTransferred& event) { note([&] { ++transferred_[event.op]; }); },
        [this](const OpDrained& event) { note([&] { ++drained_[event.op]; }); });
  }
  template <typename F>
  void note(F what) {
    const std::lock_guard lock(mutex_);
    what();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Result<uint16_t>> port_;
  std::vector<protocol::LinkReport> reports_;
  std::map<OpKey, int> transferred_, drained_;
  const std::shared_ptr<PeerThread> thread_ = std::make_shared<PeerThread>();
  net::LoopShare loop_{{thread_, &thread_->loop}};
  std::unique_ptr<DataPlane> data_;
};

}  // namespace pccl::ring
