// Disk: one file of a simulated machine. Written bytes become durable after a delay, in order. When
// the process of the machine is killed, the writes in progress may have arrived whole, in part, in
// part with garbage behind, or not at all. No caller has learned that any of them is durable. The
// World owns it.
#pragma once

#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "tests/sim/event_loop.h"
#include "tests/sim/random.h"

namespace pccl::sim {

class Disk {
 public:
  using Bytes = std::vector<std::byte>;
  // A write takes between `delay_min` and `delay_max`.
  Disk(EventLoop& event_loop, Random& random, Duration delay_min, Duration delay_max)
      : delay_min_(delay_min), delay_max_(delay_max), random_(random), fifo_(event_loop) {}

  const Bytes& content() const { return content_; }
  void replace(Bytes content) { content_ = std::move(content); }

  // `then` is called when the bytes are durable, unless crash() comes first.
  void write(Bytes bytes, std::function<void()> then) {
    under_way_.push_back({std::move(bytes), std::move(then)});
    fifo_.post(random_.duration(delay_min_, delay_max_), [this, life = life_] {
      if (life != life_) return;
      const Write done = std::move(under_way_.front());
      under_way_.pop_front();
      append(done.bytes, done.bytes.size());
      done.then();
    });
  }

  void crash() {
    ++life_;
    for (size_t whole = random_.below(under_way_.size() + 1); whole > 0; --whole) {
      append(under_way_.front().bytes, under_way_.front().bytes.size());
      under_way_.pop_front();
    }
    if (!under_way_.empty() && random_.once_in(2)) {
      const Bytes& torn = under_way_.front().bytes;
      const size_t written = random_.below(torn.size());
      append(torn, written);
      // The file has grown, but its new blocks were not written
      const bool garbage = random_.once_in(2);
      content_.resize(content_.size() + (garbage ? torn.size() - written : 0));
    }
    under_way_.clear();
  }

 private:
  struct Write {
    Bytes bytes;
    std::function<void()> then;
  };

  void append(const Bytes& bytes, size_t count) {
    content_.insert(content_.end(), bytes.begin(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(count));
  }

  const Duration delay_min_, delay_max_;
  Random& random_;
  Fifo fifo_;
  Bytes content_;
  std::deque<Write> under_way_;
  uint64_t life_ = 0;
};

}  // namespace pccl::sim
