#include "csrc/net/library_check.h"

#include <gtest/gtest.h>
#include <uv.h>

namespace pccl::net {
namespace {

const std::string kSelf = "/site-packages/pccl_backend/_C.so";
const std::string kOurs = "/usr/lib/x86_64-linux-gnu/libuv.so.1";
const std::string kBundled = "/site-packages/pccl.libs/libuv-1a2b3c4d.so.1.0.0";
const std::string kTheirs = "/site-packages/torch/lib/libtorch_cpu.so";

// `first` and `second`: the libraries of two functions.
std::string judged(const std::string& first, const std::string& second, const std::string& linked) {
  const LibuvSymbol symbols[] = {{"uv_run", first, linked}, {"uv_close", second, linked}};
  const Status status = judge_libuv(symbols, kSelf, kTheirs);
  EXPECT_TRUE(status.ok() || status.code == Code::kInvalidState);
  return status.message;
}

bool blames(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

TEST(LibraryCheck, HereAllIsWell) {
  const Status status = check_libraries(nullptr);
  EXPECT_TRUE(status.ok()) << status.message;
}

// The library of a function of torch is the one that must not have libuv's functions.
TEST(LibraryCheck, RefusesTheLibraryOfTorch) {
  const Status status = check_libraries(reinterpret_cast<const void*>(&uv_version));
  EXPECT_EQ(status.code, Code::kInvalidState);
  EXPECT_TRUE(blames(status.message, "which has put its own copy in the place of libuv"))
      << status.message;
}

TEST(LibraryCheck, AcceptsWhatItIsLinkedWith) {
  EXPECT_EQ(judged(kOurs, kOurs, kOurs), "");
  EXPECT_EQ(judged(kBundled, kBundled, kBundled), "");
}

TEST(LibraryCheck, AcceptsALibuvWithinOurOwnLibrary) {
  for (const std::string& linked : {kSelf, kTheirs}) EXPECT_EQ(judged(kSelf, kSelf, linked), "");
}

TEST(LibraryCheck, RefusesACopyInThePlaceOfLibuv) {
  for (const std::string& linked : {kOurs, kBundled, kSelf}) {
    for (const std::string& message :
         {judged(kTheirs, kTheirs, linked), judged(kTheirs, linked, linked),
          judged(linked, kTheirs, linked)}) {
      EXPECT_TRUE(blames(message, kTheirs)) << message;
      EXPECT_TRUE(blames(message, "Unset TORCH_USE_RTLD_GLOBAL")) << message;
    }
  }
  const std::string other = "/opt/lib/other.so";  // not torch
  EXPECT_TRUE(blames(judged(other, other, kOurs), other + ", which has put its own copy"));
}

// If torch came first in our list of libraries, its copy would be the one that we are linked with.
TEST(LibraryCheck, RefusesToBeLinkedWithTorchsCopy) {
  EXPECT_TRUE(blames(judged(kTheirs, kTheirs, kTheirs), kTheirs));
}

TEST(LibraryCheck, RefusesAMixture) {
  const LibuvSymbol symbols[] = {{"uv_run", kOurs, kOurs}, {"uv_close", kBundled, kBundled}};
  const Status status = judge_libuv(symbols, kSelf, kTheirs);
  EXPECT_TRUE(blames(status.message, "two copies are mixed")) << status.message;
}

TEST(LibraryCheck, RefusesAnOlderVersion) {
  const auto judged_version = [](const LibraryVersion& running) {
    return judge_version("OpenSSL", {3, 2, 7}, running).message;
  };
  for (const LibraryVersion& fine : {LibraryVersion{3, 2, 7}, {3, 2, 0}, {3, 6, 1}}) {
    EXPECT_EQ(judged_version(fine), "");
  }
  EXPECT_TRUE(blames(judged_version({3, 1, 9}), "built with OpenSSL 3.2.7 and runs with 3.1.9"));
  for (const LibraryVersion& wrong : {LibraryVersion{2, 9, 7}, {4, 2, 7}}) {
    EXPECT_TRUE(blames(judged_version(wrong), "Install the OpenSSL it was built with"));
  }
}

}  // namespace
}  // namespace pccl::net
