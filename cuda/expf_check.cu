// The check of expf: counts and sums over a range of bit patterns. Each thread has sums of its own,
// and adds them to the result at its end.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "cuda/device_api.h"
#include "cuda/device_guard.h"

namespace pccl::cuda {
namespace {

using Word = unsigned long long;  // the type that CUDA's atomics take

constexpr unsigned kBlocks = 1024;
constexpr unsigned kBlockThreads = 256;

__global__ void __launch_bounds__(kBlockThreads)
    count_results(uint64_t first, uint64_t count, pccl_cuda_expf_counts* counts) {
  Word nan = 0;
  Word inf = 0;
  Word finite = 0;
  Word bits_sum = 0;
  Word bits_xor = 0;
  const uint64_t threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  const uint64_t thread = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (uint64_t i = thread; i < count; i += threads) {
    const float result = expf(__uint_as_float(static_cast<unsigned>(first + i)));
    if (std::isnan(result)) {
      ++nan;
    } else if (std::isinf(result)) {
      ++inf;
    } else {
      ++finite;
    }
    const unsigned bits = __float_as_uint(result);
    bits_sum += bits;
    bits_xor ^= bits;
  }
  atomicAdd(reinterpret_cast<Word*>(&counts->nan), nan);
  atomicAdd(reinterpret_cast<Word*>(&counts->inf), inf);
  atomicAdd(reinterpret_cast<Word*>(&counts->finite), finite);
  atomicAdd(reinterpret_cast<Word*>(&counts->bits_sum), bits_sum);
  atomicXor(reinterpret_cast<Word*>(&counts->bits_xor), bits_xor);
}

}  // namespace
}  // namespace pccl::cuda

int pccl_cuda_expf_check(uint64_t first, uint64_t count, pccl_cuda_expf_counts* counts, int device,
                         void* stream) {
  const pccl::cuda::DeviceGuard guard(device);
  if (guard.status() != cudaSuccess) return guard.status();
  auto* const on = static_cast<cudaStream_t>(stream);
  const cudaError_t status = cudaMemsetAsync(counts, 0, sizeof *counts, on);
  if (status != cudaSuccess) return status;
  void* arguments[] = {&first, &count, &counts};
  return cudaLaunchKernel(pccl::cuda::count_results, dim3(pccl::cuda::kBlocks),
                          dim3(pccl::cuda::kBlockThreads), arguments, 0, on);
}
