// The values of a Workload: the inputs of its collectives, the formats in which they travel, the
// results that they must have, the check of the results that they have (promise P3), and the memory
// of all of them.

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/reducible.h"
#include "master/epochs/one_shot_limit.h"
#include "tests/cpp/quantized_sum.h"
#include "tests/cpp/ring_blocks.h"
#include "tests/sim/workload.h"

namespace pccl::sim {

using protocol::OpKind;

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

// Of some calls whose tensors are large enough.
constexpr uint64_t kCountQuantized[] = {5000, 20000, 40000};
constexpr WireFormat kFormats[] = {{8, 256, 8}, {4, 64, 8},        {8, 1024, 16},
                                   {16, 0, 16}, {8, 256, 8, true}, {4, 64, 8, true}};

bool contains(const std::vector<PeerId>& peers, PeerId peer) {
  return std::find(peers.begin(), peers.end(), peer) != peers.end();
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

// A sum or an average of some elements that is called while the state is fetched takes zeros from
// this peer, and the average does not count it.
void Workload::on_called(peer::Handle handle, bool fetches) {
  const auto found = open_.find(handle);
  if (!fetches || found == open_.end()) return;
  const Call& call = found->second.call;
  const bool adds = call.reduce == ReduceOp::kSum || call.reduce == ReduceOp::kAvg;
  const bool reduces = call.kind == OpKind::kAllReduce || call.kind == OpKind::kReduce ||
                       call.kind == OpKind::kReduceScatter;
  if (adds && reduces && call.count > 0) checker_.misses(call.name, node_.id());
}

// Each rank has its own, in half of the runs.
int8_t Workload::priority(peer::Handle handle) const {
  if (Random(seed_ ^ 0x9410).once_in(2)) return 0;
  Random random(mix(mix(seed_ ^ 0x9410, node_.id().value), handle));
  return static_cast<int8_t>(protocol::kPriorityMin +
                             static_cast<int>(random.below(protocol::kPriorities)));
}

std::vector<PeerId> Workload::members_at(Epoch epoch) const {
  auto took_part = epochs_.upper_bound(epoch);
  PCCL_ASSERT(took_part != epochs_.begin());
  std::vector<PeerId> members;
  for (const auto& member : (--took_part)->second.members) members.push_back(member.peer);
  return members;
}

std::vector<PeerId> Workload::present(const Call& call, std::vector<PeerId> members) const {
  const std::set<PeerId>& absent = checker_.absent_from(call.name);
  std::erase_if(members, [&](PeerId peer) { return absent.contains(peer); });
  return members;
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
  // append_value() cuts off the fraction if the type is an integer.
  return static_cast<float>(value) / static_cast<float>(std::max<size_t>(over.size(), 1));
}

// Makes a sum or an average of floats travel in a format, if it is one.
void Workload::quantize(Call& call, Random& random) const {
  call.format = kFormats[random.below(std::size(kFormats))];
  if (call.kind != protocol::OpKind::kAllReduce ||
      !check_quantizable(call.format, call.dtype, call.reduce).ok())
    call.format = {};
  if (rules_.rings_only && call.format.bits == 4) call.format.bits = 8;  // 4 are refused there
  if (!call.format.quantizes() || call.count > kCountQuantized[0]) return;
  const bool fast = node_.world().options().wire.fast();
  call.count = kCountQuantized[fast ? random.below(std::size(kCountQuantized)) : 0];
}

// Small tensors are not.
bool Workload::is_quantized(const Call& call, size_t members) const {
  if (!call.format.quantizes() || members < 2) return false;
  const uint64_t bytes = call.count * element_bytes(call.dtype);
  return bytes > master::one_shot_limit(members, node_.world().options().one_shot_bytes);
}

void Workload::append_quantized(std::vector<std::byte>& out, const Posted& posted, uint64_t start,
                                const peer::Part& part, size_t members) const {
  const Call& call = posted.call;
  const OpKey key{tag_id(call.tag), posted.sequence};
  RandomKeys keys{{}, protocol::random_key(posted.generation, key, {}), start};
  std::vector<std::vector<std::byte>> contributions;
  for (const PeerId peer : part.contributors) {
    append_values(contributions.emplace_back(), call.dtype, start, part.end,
                  [&](uint64_t i) { return input(peer, call, i); });
    keys.own.push_back(protocol::random_key(posted.generation, key, peer));
  }
  const std::vector<std::byte> sum =
      quantized_sum(call.format, call.dtype, call.reduce, contributions, members == 2, 0, keys);
  out.insert(out.end(), sum.begin(), sum.end());
}

void Workload::on_started(const peer::StartOp& start, std::vector<PeerId> order) {
  Posted& posted = open_.at(start.handle);
  const bool quantizes = posted.call.kind == OpKind::kAllReduce && posted.call.format.quantizes();
  if (!rules_.rings_only || !quantizes) return;
  posted.attempts.insert_or_assign(start.start, Attempt{start.task.shape, std::move(order)});
}

std::vector<std::byte> Workload::reduced_around(const Posted& posted) const {
  const Call& call = posted.call;
  std::vector<std::byte> out;
  for (auto at = posted.attempts.begin(); at != posted.attempts.end(); ++at) {
    const auto& [start, attempt] = *at;
    const uint64_t end = std::next(at) == posted.attempts.end() ? call.count : std::next(at)->first;
    if (start == end) continue;  // everything was final before the last attempt
    const std::vector<PeerId> over = present(call, attempt.order);
    const size_t members = attempt.order.size();
    if (!is_quantized(call, members) || over.empty()) {
      append_values(out, call.dtype, start, end,
                    [&](uint64_t i) { return reduced(call, over, i); });
    } else if (members == 2) {
      append_quantized(out, posted, start, {end, over}, members);
    } else {
      const std::vector<std::byte> sum = quantized_around(posted, start, attempt);
      const auto bytes = static_cast<ptrdiff_t>((end - start) * element_bytes(call.dtype));
      out.insert(out.end(), sum.begin(), sum.begin() + bytes);
    }
  }
  return out;
}

// From its first element to the end of the tensor. An absent peer contributes zeros.
std::vector<std::byte> Workload::quantized_around(const Posted& posted, uint64_t start,
                                                  const Attempt& attempt) const {
  using protocol::random_key;
  const Call& call = posted.call;
  const OpKey key{tag_id(call.tag), posted.sequence};
  RandomKeys keys{{}, random_key(posted.generation, key, {}), start};
  const std::set<PeerId>& absent = checker_.absent_from(call.name);
  Buffers contributions;
  size_t missing = 0;
  for (const PeerId peer : attempt.order) {
    const bool zeros = absent.contains(peer);
    missing += zeros ? 1 : 0;
    append_values(contributions.emplace_back(), call.dtype, start, call.count,
                  [&](uint64_t i) { return zeros ? 0 : input(peer, call, i); });
    keys.own.push_back(random_key(posted.generation, key, peer));
    keys.partial.push_back(random_key(posted.generation, key, peer, Rounded::kPartialSum));
  }
  ring::Shape shape = attempt.shape;
  PCCL_ASSERT(shape.pattern == ring::Pattern::kAllReduce && shape.world == attempt.order.size());
  shape.rank = 0;
  return quantized_ring_sum(call.format, call.dtype, call.reduce, contributions,
                            ring_blocks(ring::Schedule(shape)), missing, keys);
}

// Whether a reduce-scatter writes its result into the block of this rank in its input.
bool Workload::is_into_input(const Call& call) {
  return call.kind == OpKind::kReduceScatter && !call.apart;
}

// The elements that pass from one rank to another one, or stay with it.
uint64_t Workload::part(const Call& call, uint32_t from, uint32_t to) const {
  if (!call.uneven) return call.count;
  const uint64_t target = call.kind == OpKind::kAllGather ? 0 : to;  // the same block for all
  const uint64_t name = static_cast<uint8_t>(call.name.back());
  return (from * 5 + target * 3 + name) % 4 * call.count / 2;
}

// The block that passes from one rank to another one.
std::vector<std::byte> Workload::block_of(const Call& call, uint32_t from, uint32_t to) const {
  const bool own_of_each = call.kind == OpKind::kReduceScatter || call.kind == OpKind::kScatter ||
                           call.kind == OpKind::kAllToAll;
  const uint64_t start = own_of_each ? to * call.count : 0;
  std::vector<std::byte> bytes;
  append_values(bytes, call.dtype, start, start + part(call, from, to),
                [&](uint64_t i) { return input(topology_.members[from].peer, call, i); });
  return bytes;
}

Workload::Buffers Workload::inputs_of(const Call& call, uint32_t rank) const {
  Buffers inputs;
  switch (call.kind) {
    case OpKind::kGather: return {block_of(call, rank, call.root)};
    case OpKind::kAllGather:
      if (call.apart) inputs.push_back(block_of(call, rank, rank));
      return inputs;
    case OpKind::kScatter:
      if (rank != call.root) return inputs;
      break;
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll: break;
    default: return inputs;
  }
  for (uint32_t to = 0; to < topology_.members.size(); ++to)
    inputs.push_back(block_of(call, rank, to));
  return inputs;
}

// Before the call. What is in place is the input, too.
Workload::Buffers Workload::outputs_of(const Call& call) const {
  const auto world = static_cast<uint32_t>(topology_.members.size());
  const uint32_t self = topology_.rank;
  Buffers outputs;
  if (call.kind == OpKind::kBarrier) return outputs;
  if (call.kind == OpKind::kGather && self != call.root) return outputs;
  if (call.kind != OpKind::kAllGather && call.kind != OpKind::kGather &&
      call.kind != OpKind::kAllToAll) {
    if (is_into_input(call)) return {block_of(call, self, self)};
    fill(outputs.emplace_back(), topology_.members[self].peer, call);
    return outputs;
  }
  for (uint32_t from = 0; from < world; ++from) {
    std::vector<std::byte> own = block_of(call, self, self);
    own.resize(part(call, from, self) * element_bytes(call.dtype));
    outputs.push_back(std::move(own));
  }
  return outputs;
}

std::optional<std::vector<std::byte>> Workload::moved(const Posted& posted, uint32_t block) const {
  const Call& call = posted.call;
  const uint32_t self = topology_.rank;
  switch (call.kind) {
    case OpKind::kAllGather:
    case OpKind::kGather:
    case OpKind::kAllToAll: return block_of(call, block, self);
    case OpKind::kScatter: return block_of(call, call.root, self);
    case OpKind::kReduce:
      if (self != call.root) return posted.before[block];
      return std::nullopt;
    case OpKind::kAllReduce:
    case OpKind::kReduceScatter: return std::nullopt;
    default: {
      std::vector<std::byte> bytes;
      fill(bytes, topology_.members[call.root].peer, call);
      return bytes;
    }
  }
}

std::vector<std::byte> Workload::reduced_part(const Posted& posted, uint64_t start,
                                              const peer::Part& part, size_t members) const {
  const Call& call = posted.call;
  const uint64_t first = call.kind == OpKind::kReduceScatter ? topology_.rank * call.count : 0;
  std::vector<std::byte> bytes;
  if (is_quantized(call, members) && !part.contributors.empty()) {
    append_quantized(bytes, posted, start, part, members);
  } else {
    append_values(bytes, call.dtype, first + start, first + part.end,
                  [&](uint64_t i) { return reduced(call, part.contributors, i); });
  }
  return bytes;
}

// Under policy raise the application does not hear of the epochs in which only kept operations go
// on. So if some are absent, it is not known whether they were members when a part was reduced. The
// number of members counts only for what is quantized.
std::vector<size_t> Workload::member_counts(const Call& call, const peer::Part& part,
                                            std::optional<size_t> known) const {
  const size_t least = part.contributors.size();
  const size_t absent = checker_.absent_from(call.name).size();
  if (!call.format.quantizes() || absent == 0) return {least};
  if (known) return {*known};
  std::vector<size_t> counts;
  for (size_t count = least; count <= least + absent; ++count) counts.push_back(count);
  return counts;
}

bool Workload::is_right(const Posted& posted, uint32_t block, const std::vector<peer::Part>& parts,
                        std::optional<size_t> members) const {
  std::span<const std::byte> rest = posted.buffers[block];
  if (const auto right = moved(posted, block)) return same(posted.buffers[block], *right);
  if (!posted.attempts.empty()) return same(posted.buffers[block], reduced_around(posted));
  uint64_t start = 0;
  for (const peer::Part& part : parts) {
    const size_t bytes = (part.end - start) * element_bytes(posted.call.dtype);
    if (bytes > rest.size()) return false;
    const std::vector<size_t> counts = member_counts(posted.call, part, members);
    const bool right = std::any_of(counts.begin(), counts.end(), [&](size_t count) {
      const std::vector<std::byte> one = reduced_part(posted, start, part, count);
      return std::equal(one.begin(), one.end(), rest.begin(),
                        rest.begin() + static_cast<std::ptrdiff_t>(bytes));
    });
    if (!right) return false;
    rest = rest.subspan(bytes);
    start = part.end;
  }
  return rest.empty();
}

bool Workload::same_on_all(const Call& call) {
  return call.kind == OpKind::kAllReduce || call.kind == OpKind::kBroadcast ||
         call.kind == OpKind::kAllGather;
}

// The contributors are the members of the epoch in which the operation ended, without those that
// are absent. A kept operation names the contributors of each part; those of the last part are
// these same members. Nobody is absent from a part without elements.
void Workload::check_result(const Posted& posted, const peer::FinishOp& ended) {
  const Call& call = posted.call;
  const std::vector<PeerId> members = members_at(ended.epoch);
  std::vector<peer::Part> parts = ended.parts;
  const bool last_is_empty = parts.size() > 1 && parts[parts.size() - 2].end == call.count;
  const peer::Part whole{call.count, last_is_empty ? members : present(call, members)};
  if (!call.keep) parts = {whole};
  // Under policy raise the application is not informed of epochs in which only kept operations
  // continue.
  if (parts.empty() || parts.back().end != call.count || (rules_.retries && parts.back() != whole))
    return fail("P3 " + call.name + ": contributors that make no sense");
  // Members only leave, and a member that is absent stays so. So later parts have no further
  // contributors.
  const std::vector<PeerId>* before = nullptr;
  for (const peer::Part& part : parts) {
    if (last_is_empty && &part == &parts.back()) continue;
    const std::vector<PeerId>& of = part.contributors;
    if (of != present(call, of))
      return fail("P3 " + call.name + ": an absent peer is a contributor");
    const auto joins = [&](PeerId peer) { return !contains(*before, peer); };
    if (before != nullptr && std::any_of(of.begin(), of.end(), joins))
      return fail("P3 " + call.name + ": a part has contributors that the one before lacks");
    const bool absent = checker_.absent_from(call.name).contains(node_.id());
    if (!absent && !contains(of, node_.id()))
      return fail("P3 " + call.name + ": this peer is no contributor");
    before = &of;
  }
  if (parts.size() > 1) node_.world().note(node_.name(), posted.call.name + " was kept in part");
  const bool received = posted.call.kind == OpKind::kSend && topology_.rank == posted.call.peer;
  if (ended.source != (received ? static_cast<int32_t>(posted.call.root) : -1))
    fail("P1 " + posted.call.name + ": sent by rank " + std::to_string(ended.source));
  const bool known = parts.size() == 1 && epochs_.contains(ended.epoch);
  const std::optional<size_t> count = known ? std::optional(members.size()) : std::nullopt;
  for (uint32_t block = 0; block < posted.buffers.size(); ++block) {
    if (!is_right(posted, block, parts, count)) fail("P3 " + posted.call.name + ": wrong result");
  }
}

// ---- Memory ----

ring::Memory Workload::memory(peer::Handle handle) {
  ring::Memory memory;
  const auto found = open_.find(handle);
  PCCL_ASSERT(found != open_.end());
  for (auto& buffer : found->second.buffers) memory.spans.emplace_back(buffer);
  for (const auto& input : found->second.inputs) memory.inputs.emplace_back(input);
  if (is_into_input(found->second.call)) memory.inputs[topology_.rank] = memory.spans[0];
  return memory;
}

}  // namespace pccl::sim
