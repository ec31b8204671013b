// record_pump: how much faster helpers (csrc/base/helper_threads.h) encrypt and decrypt long data.
//   cmake --build build/core --target pccl-record-pump && build/core/pccl-record-pump [HELPERS]
// One end of a connection writes 512 MiB, the other end reads them, on one thread without a
// network; then the same with helpers, in turns. Prints GB/s (1e9 bytes), the medians of 7 rounds.
// Use it only while other cores are idle.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "csrc/net/sealed_records.h"

namespace {

using pccl::net::ByteQueue;
using pccl::net::RecordCipher;
using pccl::net::SealedRecords;
using Bytes = std::span<const std::byte>;

constexpr auto kSuite = RecordCipher::Suite::kAes128Gcm;
constexpr size_t kBytes = 512u << 20;
constexpr int kRounds = 7;

struct Ends {
  explicit Ends(pccl::HelperThreads* helpers) {
    const pccl::net::Key secret{};
    if (!writer.begin_sending(kSuite, secret) || !reader.begin_receiving(kSuite, secret)) exit(1);
    if (helpers == nullptr) return;
    writer.share_work(*helpers);
    reader.share_work(*helpers);
  }
  // Returns GB/s.
  double pump(Bytes data) {
    const auto begun = std::chrono::steady_clock::now();
    while (!data.empty()) {
      data = data.subspan(writer.write(std::span(&data, 1)).value());
      // Opened where they were sealed: a copy would hide what the helpers bring.
      const Bytes sealed = queue.bytes();
      std::span<std::byte> rest(const_cast<std::byte*>(sealed.data()), sealed.size());
      while (!reader.read(rest).value().empty()) {
      }
      queue.drop(queue.size());
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun;
    return kBytes / 1e9 / passed.count();
  }

  ByteQueue queue, unused;
  SealedRecords writer{queue}, reader{unused};
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main(int count, char** words) {
  const int helpers = count == 2 ? atoi(words[1]) : 1;
  if (count > 2 || helpers < 1) {
    fprintf(stderr, "usage: pccl-record-pump [HELPERS], at least 1\n");
    return 2;
  }
  const std::vector<std::byte> data(kBytes, std::byte{1});
  pccl::HelperThreads threads(static_cast<size_t>(helpers));
  Ends alone(nullptr), shared(&threads);
  std::vector<double> without, with;
  for (int round = 0; round < kRounds; ++round) {
    without.push_back(alone.pump(data));
    with.push_back(shared.pump(data));
  }
  printf("1 thread: %.2f GB/s; %d threads: %.2f GB/s; %.2f times as fast\n", median(without),
         helpers + 1, median(with), median(with) / median(without));
  return 0;
}
