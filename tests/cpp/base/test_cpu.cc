#include "csrc/base/cpu.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
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

TEST(Cpu, WidestVectorsAreWideOnes) {
  const bool present = has_widest_vectors();
  allow_widest_vectors(false);
  EXPECT_FALSE(has_widest_vectors());
  allow_widest_vectors(true);
  allow_wide_vectors(false);
  EXPECT_FALSE(has_widest_vectors());
  allow_wide_vectors(true);
  EXPECT_EQ(has_widest_vectors(), present);
}

TEST(Cpu, AesCanBeForbiddenAndAllowedAgain) {
  const bool present = has_aes();
  allow_aes(false);
  EXPECT_FALSE(has_aes());
  allow_aes(true);
  EXPECT_EQ(has_aes(), present);
}

#if PCCL_X86
TEST(Cpu, AgreesWithTheKernelOfTheMachine) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("flags")) {
  }
  if (line.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  std::istringstream flags(line);
  std::set<std::string> found;
  for (std::string flag; flags >> flag;) found.insert(flag);
  EXPECT_EQ(has_wide_vectors(), found.contains("avx2") && found.contains("f16c"));
  bool widest = has_wide_vectors();
  for (const char* part : {"avx512f", "avx512bw", "avx512dq", "avx512vl"})
    widest = widest && found.contains(part);
  EXPECT_EQ(has_widest_vectors(), widest);
  EXPECT_EQ(has_aes(), found.contains("aes") && found.contains("pclmulqdq"));
}
#else
TEST(Cpu, OtherMachinesHaveNone) { EXPECT_FALSE(has_wide_vectors() || has_widest_vectors()); }
#endif

}  // namespace
}  // namespace pccl
