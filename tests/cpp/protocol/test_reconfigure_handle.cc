#include "csrc/protocol/reconfigure_handle.h"

#include <gtest/gtest.h>

namespace pccl::protocol {
namespace {

const ReconfigureHandle kHandle{{"10.0.0.5", 41234}, "5f1c03aa5f1c03aa", 3};

TEST(ReconfigureHandle, IsOneLineThatIsReadBackAsItWas) {
  EXPECT_EQ(text(kHandle), "pccl1/10.0.0.5/41234/5f1c03aa5f1c03aa/3");
  for (const char* host : {"10.0.0.5", "2001:db8::1", "node-7.example"}) {
    ReconfigureHandle handle = kHandle;
    handle.at.host = host;
    const auto back = parse_handle(text(handle));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back.value(), handle);
  }
  ReconfigureHandle keyed = kHandle;
  keyed.key = std::string(ReconfigureHandle::kKeyDigits, 'a');
  EXPECT_EQ(text(keyed), text(kHandle) + "/" + keyed.key);
  ASSERT_TRUE(parse_handle(text(keyed)).ok());
  EXPECT_EQ(parse_handle(text(keyed)).value(), keyed);
  EXPECT_EQ(short_name(kHandle), "10.0.0.5:41234 (group 5f1c03)");
}

TEST(ReconfigureHandle, AnotherTextIsRefused) {
  for (const char* text : {
           "",
           "gloo:0:1:2:3",
           "pccl2/10.0.0.5/41234/5f1c03aa5f1c03aa/3",
           "pccl1/10.0.0.5/41234/5f1c03aa5f1c03aa",
           "pccl1/10.0.0.5/41234/5f1c03aa5f1c03aa/3/",
           "pccl1/10.0.0.5/41234/5f1c03aa5f1c03aa/3/abc",
           "pccl1//41234/5f1c03aa5f1c03aa/3",
           "pccl1/10.0.0.5/0/5f1c03aa5f1c03aa/3",
           "pccl1/10.0.0.5/65536/5f1c03aa5f1c03aa/3",
           "pccl1/10.0.0.5/+1/5f1c03aa5f1c03aa/3",
           "pccl1/10.0.0.5/041/5f1c03aa5f1c03aa/3",
           "pccl1/10.0.0.5/41234/5f1c03aa5f1c03a/3",
           "pccl1/10.0.0.5/41234/5F1C03AA5F1C03AA/3",
           "pccl1/10.0.0.5/41234/5f1c03aa5f1c03aa/-3",
           "pccl1/10.0.0.5/41234/5f1c03aa5f1c03aa/",
           "pccl1/10.0 .0.5/41234/5f1c03aa5f1c03aa/3",
       }) {
    EXPECT_EQ(parse_handle(text).status().code, Code::kInvalidArgument) << text;
  }
  const std::string error = parse_handle(std::string(5000, 'x') + "\n").status().message;
  EXPECT_LT(error.size(), 400);
  EXPECT_NE(error.find("is no handle of pccl"), std::string::npos);
}

}  // namespace
}  // namespace pccl::protocol
