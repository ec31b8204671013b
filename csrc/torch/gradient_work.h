// gradient_work: the return value of a communication hook of DistributedDataParallel.
#pragma once

#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace pccl::torch_layer {

// Returns a Work whose Future ends when `work` ends: with `gradient`, a tensor of Python, or with
// the exception of `work`, which keeps its type. torch's own Future.then() would turn the exception
// into text. No Python code runs at the end of `work`. Call it with the GIL.
c10::intrusive_ptr<c10d::Work> gradient_work(const c10::intrusive_ptr<c10d::Work>& work,
                                             pybind11::object gradient);

}  // namespace pccl::torch_layer
