#include "csrc/torch/fork.h"

#include <pthread.h>

#include <atomic>

namespace pccl::torch_layer {
namespace {

std::atomic<uint64_t> g_forks{0};
[[maybe_unused]] const int g_registered = pthread_atfork(nullptr, nullptr, [] { ++g_forks; });

}  // namespace

uint64_t forks() { return g_forks.load(std::memory_order_relaxed); }

}  // namespace pccl::torch_layer
