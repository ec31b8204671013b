// Fuzzes PeerCore in the world of tests/cpp/peer/wild.h: the bytes choose what its application, its
// data plane and its master do. All that it sends is encoded.
#include "tests/cpp/peer/wild.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  testing::FLAGS_gtest_break_on_failure = true;
  pccl::peer::Wild wild{pccl::Chance::in_events(std::span(data, size))};
  wild.run(3000);
  return 0;
}
