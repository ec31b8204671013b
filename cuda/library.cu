// The questions that a caller asks the library before it uses it: its version, and its devices.

#include <cuda_runtime.h>

#include "cuda/device_api.h"

int pccl_cuda_api_version() { return PCCL_CUDA_API_VERSION; }

const char* pccl_cuda_error_text(int status) {
  return cudaGetErrorString(static_cast<cudaError_t>(status));
}

int pccl_cuda_device_count(int* count) { return cudaGetDeviceCount(count); }
