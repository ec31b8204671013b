#include "cuda/library.cu"

#include <gtest/gtest.h>

namespace pccl::cuda {
namespace {

TEST(CudaLibrary, AnswersWhatACallerAsksFirst) {
  EXPECT_EQ(pccl_cuda_api_version(), PCCL_CUDA_API_VERSION);
  int count = 0;
  EXPECT_EQ(pccl_cuda_device_count(&count), 0);
  EXPECT_EQ(count, twin::device.count);
  EXPECT_STREQ(pccl_cuda_error_text(0), "no error");
}

}  // namespace
}  // namespace pccl::cuda
