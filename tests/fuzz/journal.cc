// Fuzzes the reader of a master's journal: any file, and any payload in frames with right
// checksums. A journal that was read and compacted must read back with the same content.
#include "master/runs/journal.h"

#include "csrc/net/checksum.h"
#include "csrc/protocol/wire.h"
#include "tests/fuzz/fuzz.h"

namespace pccl::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

void replay(std::span<const std::byte> file) {
  auto replayed = master::journal::replay(file);
  if (!replayed.ok()) return;
  require(replayed.value().bytes <= file.size(), "no more is good than there is");
  auto again = master::journal::replay(master::journal::compacted(replayed.value().memory));
  require(again.ok(), "what was read can be written and read again");
  require(again.value().memory == replayed.value().memory, "and it says the same");
}

// Makes each piece of the input a frame of its own. The first byte of a piece gives its length.
Bytes framed(Bytes file, std::span<const std::byte> input) {
  while (!input.empty()) {
    const size_t wanted = 1 + 4 * std::to_integer<size_t>(input[0]);
    input = input.subspan(1);
    const auto payload = input.first(std::min(wanted, input.size()));
    input = input.subspan(payload.size());
    Bytes length;
    protocol::Writer{length}(static_cast<uint32_t>(payload.size()));
    net::Checksum sum;
    sum.add(length);
    sum.add(payload);
    file.insert(file.end(), length.begin(), length.end());
    protocol::Writer{file}(sum.value());
    file.insert(file.end(), payload.begin(), payload.end());
  }
  return file;
}

}  // namespace
}  // namespace pccl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = pccl::fuzz::as_bytes(data, size);
  pccl::fuzz::replay(bytes);
  pccl::fuzz::replay(pccl::fuzz::framed(pccl::master::journal::header(), bytes));
  return 0;
}
