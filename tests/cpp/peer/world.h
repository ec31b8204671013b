// World: a master and its peers in one process, over real loopback sockets. each() runs one thread
// per peer, as the processes of a run would. Outcome is a posted operation that a test can wait
// for.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/base/result.h"
#include "csrc/peer/shell/peer.h"
#include "master/shell/shell.h"

namespace pccl::peer {

class Outcome {
 public:
  Completion completion() {
    return [state = state_](OpResult result) {
      const std::lock_guard lock(state->mutex);
      EXPECT_FALSE(state->status.has_value()) << "completed twice";
      state->status = std::move(result.status);
      state->changed.notify_all();
    };
  }
  Status wait() const {
    std::unique_lock lock(state_->mutex);
    if (!state_->changed.wait_for(lock, std::chrono::seconds(20),
                                  [this] { return state_->status.has_value(); })) {
      return {Code::kSystem, "still not completed after 20 s", {}};
    }
    return *state_->status;
  }
  bool ready() const {
    const std::lock_guard lock(state_->mutex);
    return state_->status.has_value();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Status> status;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span<T>(values));
}

class World {
 public:
  explicit World(uint32_t size = 0, uint32_t min_peers = 0) {
    Result<std::unique_ptr<master::Shell>> opened = master::Shell::open({"127.0.0.1", 0});
    EXPECT_TRUE(opened.ok());
    set_log_level("error");  // most of these tests fail operations on purpose
    master_ = std::move(opened.value());
    peers_.resize(size);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([this, rank, size, min_peers] {
        Options wanted = options(min_peers == 0 ? size : min_peers);
        wanted.rank = static_cast<int32_t>(rank);
        Result<std::unique_ptr<Peer>> joined = join(wanted);
        ASSERT_TRUE(joined.ok()) << joined.status().message;
        peers_[rank] = std::move(joined.value());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static Options options(uint32_t min_peers) {
    Options options;
    options.run = "test";
    options.min_peers = min_peers;
    options.join_timeout = std::chrono::seconds(20);
    return options;
  }
  net::Endpoint endpoint() const { return {"127.0.0.1", master_->port()}; }
  Result<std::unique_ptr<Peer>> join(const Options& wanted,
                                     const Interrupted& interrupted = {}) const {
    return Peer::join(endpoint(), wanted, {}, interrupted);
  }

  size_t size() const { return peers_.size(); }
  Peer& peer(size_t rank) { return *peers_[rank]; }
  std::unique_ptr<Peer>& owner(size_t rank) { return peers_[rank]; }
  void add(std::unique_ptr<Peer> peer) { peers_.push_back(std::move(peer)); }

  // Runs `what` in one thread per peer that exists.
  void each(const std::function<void(Peer&, uint32_t rank)>& what) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < peers_.size(); ++rank) {
      if (peers_[rank] != nullptr) threads.emplace_back([&, rank] { what(*peers_[rank], rank); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void end_master() { master_.reset(); }

 private:
  std::unique_ptr<master::Shell> master_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

template <typename T>
ring::Memory memory(std::vector<T>& values) {
  ring::Memory out;
  out.spans = {bytes_of(values)};
  return out;
}

inline OpRequest request(protocol::OpKind kind, uint64_t count, int32_t root = -1) {
  OpRequest out;
  out.kind = kind;
  out.count = count;
  out.root = root;
  return out;
}

inline Outcome all_reduce(Peer& peer, std::vector<float>& values, const std::string& tag = "",
                          Duration timeout = {}) {
  OpRequest what = request(protocol::OpKind::kAllReduce, values.size());
  what.tag = tag;
  what.timeout = timeout;
  Outcome outcome;
  peer.post(what, memory(values), outcome.completion());
  return outcome;
}

}  // namespace pccl::peer
