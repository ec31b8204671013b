// The kernel of the state hash as host code, against the hash of the CPU.

#include "cuda/state_hash.cu"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "csrc/memory/state_hash.h"
#include "csrc/peer/shell/state/shared_entries.h"
#include "tests/cpp/peer/shell/device_memory.h"

namespace pccl::cuda {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<uint64_t> hash_all(const std::vector<pccl_cuda_span>& spans) {
  const size_t words = pccl_cuda_hash_workspace(spans.size()) / sizeof(uint64_t);
  std::vector<uint64_t> on_device(words, ~uint64_t{0});
  std::vector<uint64_t> on_host(words, ~uint64_t{0});
  EXPECT_EQ(
      pccl_cuda_hash(spans.data(), spans.size(), on_device.data(), on_host.data(), 0, nullptr), 0);
  std::vector<uint64_t> hashes(spans.size());
  pccl_cuda_hash_values(on_host.data(), spans.size(), hashes.data());
  return hashes;
}

// Random bytes that are at `offset` from an address that is a multiple of 16. Nothing follows them,
// so that the address sanitizer finds a load behind them.
class Placed {
 public:
  Placed(size_t bytes, size_t offset, uint64_t seed) : memory_(offset + bytes), offset_(offset) {
    std::mt19937_64 random(seed);
    for (std::byte& byte : memory_) byte = static_cast<std::byte>(random());
  }
  pccl_cuda_span span() const { return {memory_.data() + offset_, memory_.size() - offset_}; }
  uint64_t expected() const {
    return memory::state_hash(memory_.data() + offset_, memory_.size() - offset_);
  }

 private:
  Bytes memory_;
  size_t offset_;
};

class CudaStateHash : public testing::Test {
 protected:
  void SetUp() override { twin::device = {}; }
  void TearDown() override { twin::device = {}; }
};

// The values of tests/cpp/memory/test_state_hash.cc.
constexpr std::pair<size_t, uint64_t> kGolden[] = {
    {0, 0x38BC31AF52A94EDDu},     {1, 0xC6D2DDB591E20CFBu},      {8, 0x12D5A36F930AB786u},
    {255, 0x5A9622E86E2D0E05u},   {256, 0x4A718CB5524010FFu},    {257, 0x129CBA36724B6921u},
    {4096, 0xEA69329F0C70CD5Bu},  {16383, 0x3F9A65AAEA83A757u},  {16384, 0x1493E4910B90BB94u},
    {16385, 0x4093FF2C5DBDF52Bu}, {100000, 0x2910E1206C3FE87Fu}, {1500000, 0x8109A463A1189A26u},
};

TEST_F(CudaStateHash, HasTheGoldenValues) {
  for (const auto& [size, value] : kGolden) {
    for (size_t offset = 0; offset < 9; ++offset) {
      Bytes data(offset + size);
      for (size_t i = 0; i < size; ++i)
        data[offset + i] = static_cast<std::byte>(i * 37 + (i >> 8));
      for (unsigned blocks : {1u, 3u}) {
        for (unsigned threads : {32u, 256u}) {
          twin::device.blocks_max = blocks;
          twin::device.threads = threads;
          ASSERT_EQ(hash_all({{data.data() + offset, size}}).front(), value)
              << size << " bytes at offset " << offset << ", " << blocks << " x " << threads;
        }
      }
    }
  }
}

TEST_F(CudaStateHash, EqualsTheCpuAtEveryBoundary) {
  for (size_t edge : {0u, kRowBytes, kBatch * kRowBytes, kTileBytes, 3 * kTileBytes}) {
    for (int delta : {-257, -16, -9, -8, -7, -1, 0, 1, 7, 8, 9, 16, 255}) {
      if (delta < 0 && edge < static_cast<size_t>(-delta)) continue;
      for (size_t offset = 0; offset < 9; ++offset) {
        const Placed data(edge + static_cast<size_t>(delta), offset, edge + offset);
        ASSERT_EQ(hash_all({data.span()}).front(), data.expected())
            << data.span().bytes << " bytes at offset " << offset;
      }
    }
  }
}

TEST_F(CudaStateHash, TakesManySpansInOneLaunch) {
  std::mt19937_64 random(7);
  std::vector<Placed> data;
  std::vector<pccl_cuda_span> spans;
  std::vector<uint64_t> expected;
  for (int i = 0; i < 200; ++i) {
    const size_t bytes_max = random() % 4 == 0 ? 5 * kTileBytes : random() % 3 * kRowBytes;
    data.emplace_back(random() % (bytes_max + 1), random() % 9, random());
    spans.push_back(data.back().span());
    expected.push_back(data.back().expected());
  }
  EXPECT_EQ(hash_all(spans), expected);
  EXPECT_EQ(twin::device.launches, 1);
}

TEST_F(CudaStateHash, LaunchesNothingForNoBytes) {
  EXPECT_EQ(pccl_cuda_hash(nullptr, 0, nullptr, nullptr, 0, nullptr), 0);
  EXPECT_EQ(hash_all({{nullptr, 0}, {nullptr, 0}}),
            (std::vector<uint64_t>(2, memory::state_hash(nullptr, 0))));
  EXPECT_EQ(twin::device.launches, 0);
}

// The whole way of a shared state on a device: its entries, one launch, the offer.
TEST_F(CudaStateHash, IsTheHashThatASharedStateOffers) {
  const auto hash = [](const std::vector<memory::DeviceBytesPtr>& what) {
    std::vector<pccl_cuda_span> spans;
    for (const memory::DeviceBytesPtr& one : what)
      spans.push_back({static_cast<const peer::DeviceVector&>(*one).bytes.data(), one->size()});
    return hash_all(spans);
  };
  memory::FakeDevice device({}, peer::move, hash);
  std::vector<peer::StateSpan> entries;
  std::vector<uint64_t> expected;
  for (const unsigned size : {1u, 0u, kTileBytes + 3, 300u}) {
    Bytes data(size, static_cast<std::byte>(size));
    expected.push_back(memory::state_hash(data.data(), size));
    entries.push_back({std::to_string(entries.size()),
                       DType::kUint8,
                       {static_cast<int64_t>(size)},
                       {},
                       &device,
                       std::make_shared<peer::DeviceVector>(std::move(data))});
  }
  const auto shared = peer::SharedEntries::make(std::move(entries), {}).value();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(shared->offer().entries[i].hash, expected[i]) << i;
  EXPECT_EQ(twin::device.launches, 1);
}

TEST_F(CudaStateHash, RestoresTheDevice) {
  twin::device.count = 3;
  twin::device.current = 1;
  const Placed data(100, 0, 1);
  const pccl_cuda_span span = data.span();
  std::array<uint64_t, 4> on_device;
  std::array<uint64_t, 4> on_host;
  ASSERT_EQ(pccl_cuda_hash_workspace(1), sizeof on_host);
  EXPECT_EQ(pccl_cuda_hash(&span, 1, on_device.data(), on_host.data(), 2, nullptr), 0);
  EXPECT_EQ(twin::device.current, 1);
  EXPECT_EQ(pccl_cuda_hash(&span, 1, on_device.data(), on_host.data(), 3, nullptr),
            cudaErrorInvalidDevice);
  EXPECT_EQ(twin::device.current, 1);
}

}  // namespace
}  // namespace pccl::cuda
