#include "csrc/base/cpu.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace pccl {
namespace {

TEST(Cpu, WideVectorsCanBeForbiddenAndAllowedAgain) {
  const bool present = has_wide_vectors();
  allow_wide_vectors(false);
  EXPECT_FALSE(has_wide_vectors());
  allow_wide_vectors(true);
  EXPECT_EQ(has_wide_vectors(), present);
}

#if PCCL_X86
TEST(Cpu, AgreesWithTheKernelOfTheMachine) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("flags")) {
  }
  if (line.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  std::istringstream flags(line);
  bool avx2 = false, f16c = false;
  for (std::string flag; flags >> flag;) {
    avx2 |= flag == "avx2";
    f16c |= flag == "f16c";
  }
  EXPECT_EQ(has_wide_vectors(), avx2 && f16c);
}
#else
TEST(Cpu, OtherMachinesHaveNone) { EXPECT_FALSE(has_wide_vectors()); }
#endif

}  // namespace
}  // namespace pccl
