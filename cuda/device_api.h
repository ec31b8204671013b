// device_api: the C interface of libpccl_cuda.so, the library with pccl's CUDA kernels. The library
// knows neither torch nor Python. csrc/torch loads it at run time, and pccl works without it.
// Any thread may call a function. No function allocates memory or waits for the GPU: it puts work
// on the caller's stream and returns. It restores the current device of its thread.
//
// A status is 0 for success. Any other status is a cudaError_t, and pccl_cuda_error_text() explains
// it. A fault in a kernel shows itself later, when the caller waits for its stream.
// `stream` is a cudaStream_t of the device with number `device`.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PCCL_CUDA_FUNCTION __attribute__((visibility("default")))

// Grows with each change of this file. A library with a different number is not used.
#define PCCL_CUDA_API_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

PCCL_CUDA_FUNCTION int pccl_cuda_api_version(void);

PCCL_CUDA_FUNCTION const char* pccl_cuda_error_text(int status);

// Stores the number of devices. It fails if the machine has no driver, or one that is too old.
PCCL_CUDA_FUNCTION int pccl_cuda_device_count(int* count);

// --- The state hash ------------------------------------------------------------------------------
// The hash of csrc/memory/state_hash.h for many tensors, with one kernel launch for all of them.
// The steps are: pccl_cuda_hash(), wait for the stream, pccl_cuda_hash_values().

struct pccl_cuda_span {
  const void* data;  // memory of the device; any alignment
  uint64_t bytes;
};

// Returns the number of bytes of each of the two workspaces that a call with `count` spans needs.
PCCL_CUDA_FUNCTION size_t pccl_cuda_hash_workspace(size_t count);

// Hashes `count` spans. The list may be freed when the call returns; the data and both workspaces
// belong to the call until the stream has passed it. `device_workspace` is memory of the device,
// `host_workspace` is pinned memory; both are aligned to 8 bytes.
PCCL_CUDA_FUNCTION int pccl_cuda_hash(const struct pccl_cuda_span* spans, size_t count,
                                      void* device_workspace, void* host_workspace, int device,
                                      void* stream);

// Computes the `count` hashes from the host workspace of a call that the stream has passed. It does
// not use the GPU.
PCCL_CUDA_FUNCTION void pccl_cuda_hash_values(const void* host_workspace, size_t count,
                                              uint64_t* hashes);

// --- The check of expf ---------------------------------------------------------------------------
// Peers with different GPUs stay bit-identical only if their GPUs compute the same functions. This
// check shows it for the exponential function, as in appendix A.2 of the report (arXiv 2505.14065).

struct pccl_cuda_expf_counts {
  uint64_t nan;
  uint64_t inf;
  uint64_t finite;
  uint64_t bits_sum;  // the sum of the bits of all results, each taken as a number of 32 bits
  uint64_t bits_xor;  // their exclusive or
};

// Computes expf for `count` floats: for those whose bits are `first`, `first` + 1, and so on. The
// counts and sums of the results are written to `*counts`, which is memory of the device.
PCCL_CUDA_FUNCTION int pccl_cuda_expf_check(uint64_t first, uint64_t count,
                                            struct pccl_cuda_expf_counts* counts, int device,
                                            void* stream);

#ifdef __cplusplus
}
#endif
