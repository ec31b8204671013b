// The speed of quantizing on one thread, in GB/s of float32, with each set of vector instructions
// that this machine has:
//
//     ninja -C build/core pccl-codec && build/core/pccl-codec
//
// A line for each format and set. The tensor has 64 KiB, which stay in the cache, as a chunk does.
// "encode" makes codes, "at random" with stochastic rounding; "decode" writes floats, "add" adds
// them to a sum. "own" adds the decoded values of a tensor to a sum, and "result" makes codes and
// their decoded values. Best of many rounds.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "csrc/base/cpu.h"
#include "csrc/memory/quantize.h"

namespace pccl::memory {
namespace {

constexpr size_t kElements = 16384, kCalls = 50, kRounds = 40;

double gigabytes_a_second(const auto& run) {
  double best = 0;
  for (size_t round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t call = 0; call < kCalls; ++call) run();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, 4e-9 * kElements * kCalls / time.count());
  }
  return best;
}

void measure(const char* format, const Quantization& how, const char* instructions) {
  std::vector<float> tensor(kElements), sum(kElements);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& value : tensor) value = normal(random);
  std::vector<std::byte> row(quantized_bytes(how, kElements));
  const Stretch all = whole(kElements);
  const auto* const from = reinterpret_cast<const std::byte*>(tensor.data());
  const auto encode = [&](const Rounding& rounding) {
    return gigabytes_a_second(
        [&] { quantize(how, DType::kFloat32, from, all, row.data(), rounding); });
  };
  const double nearest = encode({}), at_random = encode({true, 1, 0});
  const double decode = gigabytes_a_second([&] {
    dequantize(how, DType::kFloat32, row.data(), all, reinterpret_cast<std::byte*>(sum.data()));
  });
  const double add = gigabytes_a_second([&] { add_dequantized(how, row.data(), all, sum.data()); });
  const double own =
      gigabytes_a_second([&] { add_quantized(how, DType::kFloat32, from, all, sum.data()); });
  const double result =
      gigabytes_a_second([&] { quantize_both(how, tensor.data(), all, row.data(), sum.data()); });
  std::printf("| %s, %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", format, instructions,
              nearest, at_random, decode, add, own, result);
}

void measure(const char* instructions) {
  measure("8 bits", {8, 256}, instructions);
  measure("4 bits", {4, 64}, instructions);
  measure("bfloat16", {16, 256}, instructions);
}

}  // namespace
}  // namespace pccl::memory

int main() {
  std::printf(
      "| | encode | at random | decode | add | own | result |\n|---|---|---|---|---|---|---|\n");
  pccl::allow_widest_vectors(false);
  pccl::allow_wide_vectors(false);
  pccl::memory::measure("portable");
  pccl::allow_wide_vectors(true);
  if (pccl::has_wide_vectors()) pccl::memory::measure("AVX2");
  pccl::allow_widest_vectors(true);
  if (pccl::has_widest_vectors()) pccl::memory::measure("AVX-512");
}
