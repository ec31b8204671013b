#include "csrc/base/endpoint.h"

#include <gtest/gtest.h>

namespace pccl {
namespace {

TEST(Endpoint, IsWrittenAsUrlsHaveIt) {
  EXPECT_EQ(text(Endpoint{"10.0.0.7", 48201}), "10.0.0.7:48201");
  EXPECT_EQ(text(Endpoint{"a.example", 1}), "a.example:1");
  EXPECT_EQ(text(Endpoint{"fe80::1", 48201}), "[fe80::1]:48201");
}

}  // namespace
}  // namespace pccl
