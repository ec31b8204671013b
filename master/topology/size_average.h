// SizeAverage: the size of the all-reduces that a plan is made for: the mean over the bytes of the
// last ones, not over the operations. A byte of a small all-reduce spends its time on hops, and one
// of a large all-reduce on the slowest hop, so the bytes decide which plan is faster. Plain values.
#pragma once

namespace pccl::master::topology {

class SizeAverage {
 public:
  // Until one is known: trainers reduce buckets and parameters of some tens of MiB at a time.
  static constexpr double kGuess = 64 << 20;
  static constexpr double kMemory = 0.98;  // weight of the earlier ones, at each new one

  void note(double bytes) {
    bytes_ = kMemory * bytes_ + bytes;
    squares_ = kMemory * squares_ + bytes * bytes;
  }
  double bytes() const { return bytes_ > 0 ? squares_ / bytes_ : kGuess; }

 private:
  double bytes_ = 0, squares_ = 0;
};

}  // namespace pccl::master::topology
