// The host twin of CUDA's <cuda_runtime.h>: with this folder first among the include folders, the
// .cu files compile as host code, without a change. A CUDA thread is a fiber, and the device's
// memory is the host's. Blocks run one after another; the threads of a block take turns, and they
// change only where they wait for each other. So the twin finds wrong arithmetic, wrong bounds and
// a shuffle that a thread misses. It cannot find a race, or a fault of the compiler for GPUs.
// Use it on one thread only.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __host__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
  explicit dim3(unsigned count = 1) : x(count) {}
  unsigned x;
  unsigned y = 1;
  unsigned z = 1;
};

// --- The thread that runs ------------------------------------------------------------------------
inline dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace pccl::twin {

inline constexpr unsigned kWarp = 32;

// Runs all threads of a grid. The test fails if threads wait for others that never come.
void run_grid(unsigned blocks, unsigned threads, const std::function<void()>& thread);

// Shows `value` to the threads of this warp that `mask` has, waits for theirs, and returns the one
// of lane `lane`.
unsigned long long exchange(unsigned mask, unsigned long long value, unsigned lane);

// The functions of the runtime below report these values. Tests change them.
struct Device {
  int count = 1;
  int current = 0;
  int processors = 2;
  int launches = 0;         // of kernels, so far
  unsigned blocks_max = 0;  // of a grid; 0: as the caller wishes
  unsigned threads = 0;     // of a block; 0: as the caller wishes
};
inline Device device;

}  // namespace pccl::twin

// --- Functions of the device ---------------------------------------------------------------------

inline unsigned long long __shfl_down_sync(unsigned mask, unsigned long long value,
                                           unsigned delta) {
  const unsigned lane = threadIdx.x % pccl::twin::kWarp;
  const bool inside = lane + delta < pccl::twin::kWarp;
  return pccl::twin::exchange(mask, value, inside ? lane + delta : lane);
}

inline void atomicAdd(unsigned long long* at, unsigned long long value) { *at += value; }
inline void atomicXor(unsigned long long* at, unsigned long long value) { *at ^= value; }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }

// --- The runtime ---------------------------------------------------------------------------------
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidDevice = 101 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
struct CUstream_st;
using cudaStream_t = CUstream_st*;

inline const char* cudaGetErrorString(cudaError_t status) {
  return status == cudaSuccess ? "no error" : "an error of the twin";
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = pccl::twin::device.count;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* number) {
  *number = pccl::twin::device.current;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int number) {
  if (number < 0 || number >= pccl::twin::device.count) return cudaErrorInvalidDevice;
  pccl::twin::device.current = number;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = pccl::twin::device.processors;
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t) {
  std::memset(at, value, bytes);
  return cudaSuccess;
}

template <typename... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             size_t, cudaStream_t) {
  const auto call = [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    kernel(*static_cast<std::remove_reference_t<Parameters>*>(arguments[kIndex])...);
  };
  const pccl::twin::Device& device = pccl::twin::device;
  const unsigned blocks = device.blocks_max > 0 ? std::min(device.blocks_max, grid.x) : grid.x;
  pccl::twin::run_grid(blocks, device.threads > 0 ? device.threads : block.x,
                       [&] { call(std::index_sequence_for<Parameters...>()); });
  ++pccl::twin::device.launches;
  return cudaSuccess;
}
