// KernelsLibrary: libpccl_cuda.so, the CUDA kernels. A build without nvcc does not have it. The
// first call of kernels_library() in a process loads it from the folder of this module.
// A library that is missing or cannot be used is no error: then the work is done on the host.
// Any thread may call kernels_library(), with or without the GIL.
#pragma once

#include <string>

#include "cuda/device_api.h"

namespace pccl::torch_layer {

struct KernelsLibrary {
  // "loaded"; "absent"; otherwise the reason why the library cannot be used.
  std::string state;

  bool loaded() const { return state == "loaded"; }

  // The functions of cuda/device_api.h. They are null unless the library is loaded.
  decltype(&pccl_cuda_error_text) error_text = nullptr;
  decltype(&pccl_cuda_hash_workspace) hash_workspace = nullptr;
  decltype(&pccl_cuda_hash) hash = nullptr;
  decltype(&pccl_cuda_hash_values) hash_values = nullptr;
};

// The first call writes one log line: a warning if there is a library that cannot be used.
const KernelsLibrary& kernels_library();

}  // namespace pccl::torch_layer
