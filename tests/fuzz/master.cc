// Fuzzes MasterCore in the world of tests/cpp/master/wild.h: the bytes choose what happens. All
// that it sends and records is encoded.
#include "tests/cpp/master/wild.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  testing::FLAGS_gtest_break_on_failure = true;
  if (size == 0) return 0;
  const bool lies = data[0] % 4 != 0;
  const uint32_t founders = data[0] / 4 % 6;
  pccl::master::Wild wild(pccl::Chance::in_events(std::span(data, size).subspan(1)), lies);
  if (founders > 1) wild.found(founders);
  wild.run(3000);
  return 0;
}
