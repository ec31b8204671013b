#include "csrc/net/libuv_check.h"

#include <gtest/gtest.h>

namespace pccl::net {
namespace {

const std::string kOurs = "/usr/lib/x86_64-linux-gnu/libuv.so.1";
const std::string kTheirs = "/site-packages/torch/lib/libtorch_cpu.so";
constexpr unsigned kVersion = 1 << 16 | 44 << 8 | 2;

std::string judged(const std::string& first, const std::string& second,
                   unsigned running = kVersion) {
  const LibuvSymbol symbols[] = {{"uv_run", first}, {"uv_close", second}};
  const Status status =
      judge_libuv(symbols, "/site-packages/pccl_backend/_C.so", kVersion, running);
  EXPECT_TRUE(status.ok() || status.code == Code::kInvalidState);
  return status.message;
}

bool blames(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

TEST(LibuvCheck, HereAllIsWell) {
  const Status status = check_libuv();
  EXPECT_TRUE(status.ok()) << status.message;
}

TEST(LibuvCheck, AcceptsASharedLibraryOrOurOwn) {
  EXPECT_EQ(judged(kOurs, kOurs), "");
  EXPECT_EQ(judged("/site-packages/pccl_backend/_C.so", "/site-packages/pccl_backend/_C.so"), "");
}

TEST(LibuvCheck, RefusesAnotherLibraryAndAMixture) {
  for (const std::string& message :
       {judged(kTheirs, kTheirs), judged(kTheirs, kOurs), judged(kOurs, kTheirs)}) {
    EXPECT_TRUE(blames(message, kTheirs)) << message;
    EXPECT_TRUE(blames(message, "Unset TORCH_USE_RTLD_GLOBAL")) << message;
  }
  EXPECT_TRUE(blames(judged(kOurs, "/opt/lib/libuv.so.1"), "/opt/lib/libuv.so.1"));
}

TEST(LibuvCheck, RefusesAnOlderVersion) {
  EXPECT_EQ(judged(kOurs, kOurs, 1 << 16 | 48 << 8), "");
  EXPECT_EQ(judged(kOurs, kOurs, 1 << 16 | 44 << 8), "");
  EXPECT_TRUE(blames(judged(kOurs, kOurs, 1 << 16 | 43 << 8),
                     "built with libuv 1.44.2 and runs with 1.43.0"));
  EXPECT_TRUE(blames(judged(kOurs, kOurs, 2 << 16 | 44 << 8), "runs with 2.44.0"));
}

}  // namespace
}  // namespace pccl::net
