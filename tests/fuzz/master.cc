// MasterCore in a world gone wild (tests/cpp/master/wild.h): the bytes choose what happens. All
// that it sends and has recorded is written.
#include "tests/cpp/master/wild.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  testing::FLAGS_gtest_break_on_failure = true;
  if (size == 0) return 0;
  pccl::master::Wild wild(pccl::Chance(std::span(data, size).subspan(1)), data[0] % 4 != 0);
  wild.run(3000);
  return 0;
}
