// SizeAverage: the size of all-reduces that a plan is made for. It is the mean size of the last
// all-reduces, over their bytes, not over the operations. A small all-reduce spends its time on the
// delays of the hops, and a large one on the rate of the slowest hop. So the sizes with the most
// bytes decide which plan is faster. Plain values.
#pragma once

namespace pccl::master::topology {

class SizeAverage {
 public:
  // Until a size is known: trainers reduce buckets and parameters of some tens of MiB at a time.
  static constexpr double kGuess = 64 << 20;
  static constexpr double kMemory = 0.98;  // factor of all earlier sizes, at each new one

  void note(double bytes) {
    bytes_ = kMemory * bytes_ + bytes;
    squares_ = kMemory * squares_ + bytes * bytes;
  }
  double bytes() const { return bytes_ > 0 ? squares_ / bytes_ : kGuess; }

 private:
  double bytes_ = 0, squares_ = 0;
};

}  // namespace pccl::master::topology
