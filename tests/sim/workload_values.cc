// The values of a Workload: the inputs of its collectives, the results that they must have, and the
// check of the results that they have (promise P3).

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>

#include "csrc/base/assert.h"
#include "tests/sim/workload.h"

namespace pccl::sim {
namespace {

void append_value(std::vector<std::byte>& out, DType dtype, double value) {
  const auto append = [&out](const auto& raw) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&raw);
    out.insert(out.end(), bytes, bytes + sizeof raw);
  };
  const auto single = static_cast<float>(value);
  if (dtype == DType::kFloat32) append(single);
  if (dtype == DType::kInt64) append(static_cast<int64_t>(value));
  if (dtype == DType::kBfloat16) {
    // Rounds to the nearest; a tie goes to even.
    const auto bits = std::bit_cast<uint32_t>(single);
    append(static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
  }
}

// Inputs repeat with this period, and so do the values computed from them: see Workload::input().
constexpr uint64_t kPeriod = 2 * 13;

// Appends the values of the elements from `start` to `end`.
void append_values(std::vector<std::byte>& out, DType dtype, uint64_t start, uint64_t end,
                   const std::function<double(uint64_t)>& value) {
  const size_t width = element_bytes(dtype), first = out.size();
  const size_t bytes = (end - start) * width;
  for (uint64_t i = start; i < std::min(end, start + kPeriod); ++i) {
    append_value(out, dtype, value(i));
  }
  out.resize(first + bytes);
  for (size_t done = kPeriod * width; done < bytes; done *= 2) {
    std::memcpy(out.data() + first + done, out.data() + first, std::min(done, bytes - done));
  }
}

bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace

uint8_t Workload::input(PeerId peer, const Call& call, uint64_t index) const {
  const uint64_t value = peer.value * 5 + index * 3 + (call.name.empty() ? 0 : call.name.back());
  return static_cast<uint8_t>(call.reduce == ReduceOp::kProduct ? 1 + value % 2 : value % 13);
}

void Workload::fill(std::vector<std::byte>& bytes, PeerId peer, const Call& call) const {
  bytes.clear();
  append_values(bytes, call.dtype, 0, call.count, [&](uint64_t i) { return input(peer, call, i); });
}

double Workload::reduced(const Call& call, const std::vector<PeerId>& over, uint64_t index) const {
  double value = call.reduce == ReduceOp::kProduct ? 1 : 0;
  for (const PeerId peer : over) {
    const double one = input(peer, call, index);
    if (call.reduce == ReduceOp::kProduct)
      value *= one;
    else if (call.reduce == ReduceOp::kMax)
      value = std::max(value, one);
    else
      value += one;
  }
  if (call.reduce != ReduceOp::kAvg) return value;
  return static_cast<float>(value) / static_cast<float>(over.size());
}

std::vector<std::byte> Workload::expected(const Call& call, uint32_t block,
                                          const std::vector<peer::Part>& parts) const {
  std::vector<std::byte> bytes;
  if (call.kind == protocol::OpKind::kAllGather) {
    fill(bytes, topology_.members[block].peer, call);
  } else if (call.kind != protocol::OpKind::kAllReduce) {
    fill(bytes, topology_.members[call.root].peer, call);
  } else {
    uint64_t start = 0;
    for (const peer::Part& part : parts) {
      append_values(bytes, call.dtype, std::exchange(start, part.end), part.end,
                    [&](uint64_t i) { return reduced(call, part.contributors, i); });
    }
  }
  return bytes;
}

// The contributors are the members of the epoch in which the operation ended. A kept operation
// names the contributors of each part; those of the last part are these same members.
void Workload::check_result(const Posted& posted, const peer::FinishOp& ended) {
  auto took_part = epochs_.upper_bound(ended.epoch);
  PCCL_ASSERT(took_part != epochs_.begin());
  peer::Part whole{posted.call.count, {}};
  for (const auto& member : (--took_part)->second.members)
    whole.contributors.push_back(member.peer);
  std::vector<peer::Part> parts = ended.parts;
  if (!posted.call.keep) parts = {whole};
  // Under policy raise the application is not informed of epochs in which only kept operations
  // continue.
  if (parts.empty() || parts.back().end != posted.call.count ||
      (rules_.retries && parts.back() != whole))
    return fail("P3 " + posted.call.name + ": contributors that make no sense");
  if (parts.size() > 1) node_.world().note(node_.name(), posted.call.name + " was kept in part");
  for (uint32_t block = 0; block < posted.buffers.size(); ++block) {
    const std::vector<std::byte>& result = posted.buffers[block];
    const std::vector<std::byte> right = expected(posted.call, block, parts);
    if (!same(result, right)) fail("P3 " + posted.call.name + ": wrong result");
  }
}

}  // namespace pccl::sim
