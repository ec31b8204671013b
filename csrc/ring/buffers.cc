#include "csrc/ring/buffers.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "csrc/ring/saved_bytes.h"

namespace pccl::ring {
namespace {

// The bytes of a cache line. This number is a multiple of the size of every element, so pieces are
// cut between cache lines.
constexpr size_t kCacheLine = 64;
// Bytes that save_apart() saves are cut into pieces of this size.
constexpr uint64_t kSavedPieceBytes = uint64_t{1} << 30;
// An owner adds pieces of this size, so that a partial sum stays in the cache.
constexpr size_t kAddedPieceBytes = 16u << 10;

// Contributions in codes are added in pieces of this number of elements. A piece has whole blocks
// of codes.
constexpr size_t kAddedElements = kAddedPieceBytes / sizeof(float);
static_assert(kAddedElements % memory::Quantization::kBlockMax == 0);
struct Sum {
  alignas(kCacheLine) float at[kAddedElements];
};

// Calls visit(stretch) for each piece of a row of `row` elements.
void for_each_piece(size_t row, const auto& visit) {
  for (size_t first = 0; first < row; first += kAddedElements)
    visit(memory::Stretch{row, first, std::min(kAddedElements, row - first)});
}

// An absent member contributes these zeros in place of its data. They are as long as the largest
// chunk or part. No code writes to them, so they take no memory: the system uses one page of zeros
// for all their pages.
alignas(kCacheLine) std::byte zeros[protocol::kChunkBytesMax];
static_assert(sizeof zeros >= protocol::kOneShotBytesMax);

}  // namespace

OpBuffers::OpBuffers(const Shape& shape, Memory memory, memory::Pool& pool)
    : schedule_(shape),
      memory_(std::move(memory)),
      reduction_{memory_.dtype, memory_.reduce, memory_.contributors},
      slots_per_slab_(memory::Pool::kSlabBytes / schedule_.slot_bytes()),
      scratch_(pool),
      undo_(pool) {
  // The schedule's credit depends on `restored`, the saving on `save`.
  PCCL_ASSERT(!schedule_.row().overtakes() || shape.restored == memory_.save);
  check_room(shape);
}

void OpBuffers::check_room(const Shape& shape) const {
  const auto& [spans, inputs, dtype, reduce, contributors, save, own, absent] = memory_;
  if (schedule_.row().scatters()) {
    PCCL_ASSERT(spans.size() == 1 && spans[0].size() == schedule_.block_bytes(0));
    PCCL_ASSERT(inputs.size() == shape.world);
    for (const auto& block : inputs) PCCL_ASSERT(block.size() == spans[0].size());
  } else if (schedule_.row().has_parts() && !memory_.in_place()) {
    PCCL_ASSERT(inputs.size() == shape.world);
    PCCL_ASSERT(spans.size() == (schedule_.row().reduces ? 1 : shape.world));
  } else if (spans.size() == 1) {
    PCCL_ASSERT(spans[0].size() >= schedule_.total_bytes());
  } else {
    PCCL_ASSERT(spans.size() == schedule_.block_count());
    for (uint32_t index = 0; index < schedule_.block_count(); ++index)
      PCCL_ASSERT(spans[index].size() >= schedule_.block_bytes(index));
  }
}

bool OpBuffers::in_own_input() const {
  const std::span<const std::byte> own = memory_.inputs[schedule_.shape().rank];
  return !own.empty() && own.data() == memory_.spans[0].data();
}

Result<std::unique_ptr<OpBuffers>> OpBuffers::make(const Shape& shape, Memory memory,
                                                   memory::Pool& pool) {
  pool.turn();
  std::unique_ptr<OpBuffers> buffers(new OpBuffers(shape, std::move(memory), pool));
  Status status = buffers->reserve();
  if (!status.ok()) return status;
  return buffers;
}

Status OpBuffers::reserve() {
  const uint64_t slots = schedule_.slot_count();
  const uint64_t scratch_bytes = slots / slots_per_slab_ * memory::Pool::kSlabBytes +
                                 slots % slots_per_slab_ * schedule_.slot_bytes();
  const uint64_t saved = saved_bytes(schedule_, memory_);
  saves_ = saved > 0;
  const uint64_t apart = schedule_.shape().world + saved / kSavedPieceBytes;
  if (scratch_.reserve(scratch_bytes) && undo_.reserve(saved, schedule_.written_count() + apart))
    return {};
  const std::string scratch =
      std::to_string(scratch_bytes + (memory_.save ? 0 : saved)) + " bytes of scratch";
  if (!memory_.save) return {Code::kSystem, "no memory for " + scratch + "; free some", {}};
  return {Code::kSystem,
          "no memory for " + scratch + " and " + std::to_string(saved) +
              " bytes to restore the tensor from if the operation fails; free some, use smaller "
              "tensors, or give up restoring with PCCL_RESTORE=off"};
}

std::byte* OpBuffers::memory_of(const Chunk& chunk) const {
  if (schedule_.row().scatters()) {
    PCCL_DCHECK(chunk.block == schedule_.shape().rank);
    return memory_.spans[0].data() + (chunk.offset - schedule_.block_offset(chunk.block));
  }
  if (memory_.spans.size() == 1) return memory_.spans[0].data() + chunk.offset;
  return memory_.spans[chunk.block].data() + (chunk.offset - schedule_.block_offset(chunk.block));
}

const std::byte* OpBuffers::operand_of(const Chunk& chunk) const {
  if (!schedule_.row().scatters()) return memory_of(chunk);
  return memory_.inputs[chunk.block].data() + (chunk.offset - schedule_.block_offset(chunk.block));
}

const std::byte* OpBuffers::contributed(const std::byte* own) const {
  return memory_.absent ? zeros : own;
}

memory::Reduction OpBuffers::reduction(uint32_t absent) const {
  memory::Reduction reduction = reduction_;
  reduction.absent = static_cast<int>(absent);
  return reduction;
}

std::byte* OpBuffers::slot(uint32_t index) const {
  const uint64_t slab = index / slots_per_slab_;
  return scratch_
      .at(slab * memory::Pool::kSlabBytes + index % slots_per_slab_ * schedule_.slot_bytes())
      .data();
}

std::span<const std::byte> OpBuffers::source(const Chunk& sent) const {
  PCCL_DCHECK(copy_bytes(sent) == 0);
  if (sent.bytes == 0) return {};
  if (schedule_.row().is_one_shot()) return contribution(sent);
  if (schedule_.from_scratch(sent)) return {slot(schedule_.slot_sent(sent)), sent.wire_bytes};
  if (sent.encoding) return {slot(schedule_.slot_of_result(sent.slice)), sent.wire_bytes};
  const std::byte* const from = operand_of(sent);
  return {schedule_.is_contribution(sent) ? contributed(from) : from, sent.bytes};
}

size_t OpBuffers::copy_bytes(const Chunk& sent) const {
  if (!sent.encoding) return schedule_.row().overtakes() && !memory_.absent ? sent.bytes : 0;
  if (schedule_.row().overtakes()) return size_t{sent.wire_bytes} + sent.bytes;
  return schedule_.is_contribution(sent) ? sent.wire_bytes : 0;
}

std::span<const std::byte> OpBuffers::copy_source(const Chunk& sent,
                                                  std::span<std::byte> room) const {
  const auto old_bytes = [&](std::span<std::byte> to) {
    const size_t saved = undo_.saved(sent.id);
    undo_.read(saved_at(schedule_, memory_, sent), to.first(saved));
    std::memcpy(to.data() + saved, memory_of(sent) + saved, sent.bytes - saved);
  };
  const std::span<std::byte> made = room.first(sent.wire_bytes);
  if (!sent.encoding) {
    old_bytes(made);
    return made;
  }
  const std::byte* from = contributed(memory_of(sent));
  if (schedule_.row().overtakes() && !memory_.absent && undo_.saved(sent.id) > 0) {
    const std::span<std::byte> old = room.subspan(sent.wire_bytes, sent.bytes);
    old_bytes(old);
    from = old.data();
  }
  memory::quantize(*sent.encoding, memory_.dtype, from,
                   memory::whole(sent.bytes / element_bytes(memory_.dtype)), made.data(),
                   rounding(sent, schedule_.shape().random.own));
  return made;
}

OpBuffers::Landing OpBuffers::land(const Chunk& chunk, Action action, std::span<std::byte> spare,
                                   uint32_t absent) {
  return {chunk, action, place(chunk, action, spare), 0, absent};
}

std::span<std::byte> OpBuffers::place(const Chunk& chunk, Action action,
                                      std::span<std::byte> spare) {
  PCCL_DCHECK(!lands_apart(chunk, action) || spare.size() >= chunk.wire_bytes);
  PCCL_DCHECK(action == Action::kGather ||
              undo_.saved(schedule_.index_written(chunk)) == 0);  // it lands once
  switch (action) {
    case Action::kAccumulate: return {slot(schedule_.slot(chunk)), chunk.wire_bytes};
    case Action::kFinish: return spare.first(chunk.wire_bytes);
    case Action::kGather: return {slot(chunk.slot), chunk.wire_bytes};
    case Action::kStore: break;
  }
  if (schedule_.passes_codes(chunk)) return {slot(schedule_.slot(chunk)), chunk.wire_bytes};
  if (chunk.encoding) return spare.first(chunk.wire_bytes);
  std::byte* const target = memory_of(chunk);
  save(chunk, 0, chunk.bytes);
  return {target, chunk.wire_bytes};
}

void OpBuffers::absorb(Landing& landing, size_t at, size_t bytes) {
  const Chunk& chunk = landing.chunk;
  PCCL_ASSERT(at + bytes <= chunk.wire_bytes && at >= landing.reduced);
  if (landing.action == Action::kGather) return;
  const size_t here = at + bytes;
  if (chunk.encoding) {
    if (here == chunk.wire_bytes) decode(landing);
    return;
  }
  if (landing.action == Action::kStore) return;
  const size_t whole = here == chunk.bytes ? here : here / kCacheLine * kCacheLine;
  if (whole <= landing.reduced) return;
  const size_t piece = whole - landing.reduced;
  const size_t elements = piece / element_bytes(memory_.dtype);
  const std::byte* const operand = contributed(operand_of(chunk) + landing.reduced);
  std::byte* const partial = landing.where.data() + landing.reduced;
  const int held = schedule_.held(chunk);
  if (landing.action == Action::kAccumulate) {
    memory::reduce(reduction_, held, partial, partial, operand, elements);
  } else {
    std::byte* const result = memory_of(chunk) + landing.reduced;
    save(chunk, landing.reduced, piece);
    const bool own_first = schedule_.row().overtakes() && schedule_.shape().rank == 0;
    memory::reduce(reduction(landing.absent), held, result, own_first ? operand : partial,
                   own_first ? partial : operand, elements);
  }
  landing.reduced = whole;
}

// Decodes a chunk when all its codes have landed.
void OpBuffers::decode(const Landing& landing) {
  const Chunk& chunk = landing.chunk;
  if (landing.action == Action::kAccumulate) return add_and_encode(landing);
  std::byte* const to = memory_of(chunk);
  save(chunk, 0, chunk.bytes);
  if (landing.action == Action::kFinish)
    return schedule_.row().overtakes() ? add_encoded(landing) : finish_encoded(landing);
  memory::dequantize(*chunk.encoding, memory_.dtype, landing.where.data(),
                     memory::whole(chunk.bytes / element_bytes(memory_.dtype)), to);
}

memory::Rounding OpBuffers::rounding(const Chunk& chunk, uint64_t key) const {
  const Shape& shape = schedule_.shape();
  return {shape.format.stochastic, key, shape.random.first + chunk.offset / shape.element_bytes};
}

// A pairwise exchange: the tensor becomes the sum of both contributions. The sum of two numbers
// does not depend on their order, so both members get the same bits.
void OpBuffers::add_encoded(const Landing& landing) {
  const Chunk& chunk = landing.chunk;
  const std::byte* const codes_of_other = landing.where.data();
  const memory::Reduction how = reduction(landing.absent);
  const size_t width = element_bytes(memory_.dtype);
  const bool in_place = memory_.dtype == DType::kFloat32;
  const memory::Rounding own = rounding(chunk, schedule_.shape().random.own);
  Sum sum;
  for_each_piece(chunk.bytes / width, [&](memory::Stretch piece) {
    std::byte* const here = memory_of(chunk) + piece.first * width;
    float* const total = in_place ? reinterpret_cast<float*>(here) : sum.at;
    memory::set_quantized(*chunk.encoding, memory_.dtype, contributed(here), piece, total, own);
    memory::add_dequantized(*chunk.encoding, codes_of_other, piece, total);
    if (how.op == ReduceOp::kAvg) memory::divide(total, piece.count, divisor_of(how));
    if (!in_place) memory::round_to(memory_.dtype, total, piece.count, here);
  });
}

// A hop of the ring: decodes the partial sum, adds this rank's contribution as its own codes would
// decode, and encodes the new partial sum.
void OpBuffers::add_and_encode(const Landing& landing) {
  const Chunk& chunk = landing.chunk;
  const memory::Quantization how = *chunk.encoding;
  const size_t width = element_bytes(memory_.dtype);
  const memory::Rounding own = rounding(chunk, schedule_.shape().random.own);
  const memory::Rounding passed = rounding(chunk, schedule_.shape().random.partial);
  std::byte* const codes = landing.where.data();
  Sum sum;
  auto* const sum_bytes = reinterpret_cast<std::byte*>(sum.at);
  for_each_piece(chunk.bytes / width, [&](memory::Stretch piece) {
    const std::byte* const here = contributed(memory_of(chunk) + piece.first * width);
    memory::dequantize(how, DType::kFloat32, codes, piece, sum_bytes);
    memory::add_quantized(how, memory_.dtype, here, piece, sum.at, own);
    memory::quantize(how, DType::kFloat32, sum_bytes, piece, codes, passed);
  });
}

// The last hop of a sum: the result is encoded. Its codes wait in the slot where a chunk would land
// that is passed on.
void OpBuffers::finish_encoded(const Landing& landing) {
  const Chunk& chunk = landing.chunk;
  const size_t width = element_bytes(memory_.dtype);
  const memory::Reduction reduction = this->reduction(landing.absent);
  const memory::Rounding own = rounding(chunk, schedule_.shape().random.own);
  std::byte* const codes = slot(schedule_.slot(chunk));
  Sum sum;
  for_each_piece(chunk.bytes / width, [&](memory::Stretch piece) {
    const std::byte* const here = contributed(memory_of(chunk) + piece.first * width);
    memory::dequantize(*chunk.encoding, DType::kFloat32, landing.where.data(), piece,
                       reinterpret_cast<std::byte*>(sum.at));
    memory::add_quantized(*chunk.encoding, memory_.dtype, here, piece, sum.at, own);
    store_encoded(chunk, piece, reduction, sum.at, codes);
  });
}

// Encodes a piece of the complete sum as codes of the result, and stores their decoded values in
// the tensor.
void OpBuffers::store_encoded(const Chunk& result, memory::Stretch piece,
                              const memory::Reduction& how, float* sum, std::byte* codes) const {
  const Shape& shape = schedule_.shape();
  std::byte* const here = memory_of(result) + piece.first * shape.element_bytes;
  const bool in_place = memory_.dtype == DType::kFloat32;
  float* const back = in_place ? reinterpret_cast<float*>(here) : sum;
  if (how.op == ReduceOp::kAvg) memory::divide(sum, piece.count, divisor_of(how));
  memory::quantize_both(*memory::encoding_of_result(shape.format), sum, piece, codes, back,
                        rounding(result, shape.random.result));
  if (!in_place) memory::round_to(memory_.dtype, back, piece.count, here);
}

// ---- What does not travel as chunks ----

void OpBuffers::begin() {
  PCCL_ASSERT(!begun_);
  begun_ = true;
  const Shape& shape = schedule_.shape();
  if (memory_.absent && shape.world == 1) return zero_alone();
  if (schedule_.row().has_parts() && memory_.in_place()) {
    if (schedule_.slot_count() > 0)
      std::memcpy(slot(shape.rank), memory_.spans[0].data(), schedule_.total_bytes());
  } else if (schedule_.row().has_parts() && !schedule_.row().reduces) {
    copy_own(memory_.inputs[shape.rank], memory_.spans[shape.rank], 0);
  } else if (!memory_.in_place() && schedule_.row().reduces) {
    if (shape.world == 1) {
      copy_own(memory_.inputs[0], memory_.spans[0], 0);
    } else if (schedule_.row().has_parts() && in_own_input()) {
      std::memcpy(slot(shape.rank), memory_.spans[0].data(), schedule_.total_bytes());
    }
  } else if (!memory_.in_place()) {
    const uint64_t at = schedule_.block_offset(shape.rank), bytes = memory_.inputs[0].size();
    const bool one = memory_.spans.size() == 1;
    copy_own(memory_.inputs[0],
             one ? memory_.spans[0].subspan(at, bytes) : memory_.spans[shape.rank], at);
  }
}

// The only member is absent, so the result is zeros.
void OpBuffers::zero_alone() {
  const std::span<std::byte> to = memory_.spans[0];
  save_apart(to, 0);
  std::fill(to.begin(), to.end(), std::byte{});
}

void OpBuffers::copy_own(std::span<const std::byte> from, std::span<std::byte> to, uint64_t at) {
  PCCL_ASSERT(from.size() == to.size());
  if (from.empty() || from.data() == to.data()) return;
  save_apart(to, at);
  std::memcpy(to.data(), from.data(), to.size());
}

void OpBuffers::save(const Chunk& chunk, size_t from, size_t bytes) {
  if (!saves_) return;
  undo_.save(schedule_.index_written(chunk), saved_at(schedule_, memory_, chunk) + from,
             memory_of(chunk) + from, bytes);
}

void OpBuffers::save_apart(std::span<std::byte> bytes, uint64_t at) {
  if (!saves_) return;
  while (!bytes.empty()) {
    const std::span<std::byte> piece = bytes.first(std::min(bytes.size(), kSavedPieceBytes));
    const uint64_t id = schedule_.written_count() + saved_apart_.size();
    undo_.save(id, at, piece.data(), piece.size());
    saved_apart_.push_back({at, piece.data()});
    bytes = bytes.subspan(piece.size());
    at += piece.size();
  }
}

std::span<const std::byte> OpBuffers::contribution(const Chunk& sent) const {
  const std::byte* const own = memory_.in_place()
                                   ? slot(schedule_.shape().rank)
                                   : memory_.inputs[sent.block].first(sent.bytes).data();
  return {contributed(own), sent.bytes};
}

void OpBuffers::combine(const Chunk& result, uint32_t absent) {
  const memory::Reduction how = reduction(absent);
  if (result.encoding) return combine_encoded(result, how);
  if (schedule_.row().by_owners()) return combine_owned(result, how);
  schedule_.row().reduces ? combine_reduced(how) : combine_parts();
}

void OpBuffers::combine_parts() {
  const Shape& shape = schedule_.shape();
  // The row begins with this rank's own part: begin() has saved it.
  uint64_t at = memory_.spans[shape.rank].size();
  for (uint32_t rank = 0; rank < shape.world; ++rank) {
    const std::span<std::byte> to = memory_.spans[rank];
    if (rank == shape.rank || to.empty()) continue;
    save_apart(to, at);
    std::memcpy(to.data(), slot(rank), to.size());
    at += to.size();
  }
}

void OpBuffers::combine_reduced(const memory::Reduction& reduction) {
  const uint32_t own = schedule_.shape().rank;
  const std::span<std::byte> to = memory_.spans[0].first(schedule_.total_bytes());
  const auto operand = [&](uint32_t rank) -> const std::byte* {
    if (rank != own) return slot(rank);
    return contributed(memory_.in_place() || in_own_input() ? slot(rank)
                                                            : memory_.inputs[own].data());
  };
  if (memory_.in_place()) {
    PCCL_ASSERT(!combined_);
    combined_ = true;
  } else {
    save_apart(to, 0);
  }
  const size_t elements = to.size() / element_bytes(memory_.dtype);
  for (uint32_t rank = 1; rank < schedule_.slot_count(); ++rank) {
    const std::byte* const partial = rank == 1 ? operand(0) : to.data();
    memory::reduce(reduction, static_cast<int>(rank), to.data(), partial, operand(rank), elements);
  }
}

// The partial sum is kept in a slot whose own contribution is already in the sum. Only the last
// step writes to the tensor, which may be one of its operands.
void OpBuffers::combine_owned(const Chunk& result, const memory::Reduction& reduction) {
  const uint32_t own = schedule_.shape().rank, world = schedule_.shape().world;
  std::byte* const to = memory_of(result);
  save(result, 0, result.bytes);
  const auto slot_of = [&](uint32_t rank) { return slot(schedule_.slot_from(rank, result.slice)); };
  const auto operand = [&](uint32_t rank, size_t at) -> const std::byte* {
    return rank == own ? contributed(to + at) : slot_of(rank) + at;
  };
  for (size_t at = 0; at < result.bytes; at += kAddedPieceBytes) {
    const size_t bytes = std::min<size_t>(kAddedPieceBytes, result.bytes - at);
    const std::byte* partial = operand(0, at);
    for (uint32_t rank = 1; rank < world; ++rank) {
      std::byte* const sum = (rank + 1 == world ? to : slot_of(own == 0 ? 1 : 0)) + at;
      memory::reduce(reduction, static_cast<int>(rank), sum, partial, operand(rank, at),
                     bytes / element_bytes(memory_.dtype));
      partial = sum;
    }
  }
}

// Adds the contributions and encodes the sum for all others. Stores the decoded codes in the
// tensor, as the others do.
void OpBuffers::combine_encoded(const Chunk& result, const memory::Reduction& reduction) {
  const Shape& shape = schedule_.shape();
  const size_t width = shape.element_bytes;
  const memory::Quantization how = *memory::encoding_of_contributions(shape.format);
  std::byte* const to = memory_of(result);
  std::byte* const codes = slot(schedule_.slot_of_result(result.slice));
  save(result, 0, result.bytes);
  const memory::Rounding own = rounding(result, shape.random.own);
  Sum sum;
  for_each_piece(result.bytes / width, [&](memory::Stretch piece) {
    std::byte* const here = to + piece.first * width;
    for (uint32_t rank = 0; rank < shape.world; ++rank) {
      if (rank == shape.rank) {
        const auto contribute = rank == 0 ? memory::set_quantized : memory::add_quantized;
        contribute(how, memory_.dtype, contributed(here), piece, sum.at, own);
        continue;
      }
      const std::byte* const row = slot(schedule_.slot_from(rank, result.slice));
      if (rank > 0) {
        memory::add_dequantized(how, row, piece, sum.at);
      } else {
        memory::dequantize(how, DType::kFloat32, row, piece, reinterpret_cast<std::byte*>(sum.at));
      }
    }
    store_encoded(result, piece, reduction, sum.at, codes);
  });
}

void OpBuffers::restore(uint64_t from) {
  if (!memory_.save) return;
  if (combined_ && from == 0) {
    std::memcpy(memory_.spans[0].data(), slot(schedule_.shape().rank), schedule_.total_bytes());
  }
  for (uint64_t index = 0; index < schedule_.written_count(); ++index) {
    if (undo_.saved(index) == 0) continue;
    const Chunk chunk = schedule_.written(index);
    undo_.restore(index, saved_at(schedule_, memory_, chunk), memory_of(chunk),
                  from - std::min(from, chunk.offset));
  }
  for (uint64_t index = 0; index < saved_apart_.size(); ++index) {
    const auto& [at, bytes] = saved_apart_[index];
    undo_.restore(schedule_.written_count() + index, at, bytes);
  }
}

void OpBuffers::close(uint64_t end) {
  scratch_.shrink(0);
  undo_.shrink(end);
}

}  // namespace pccl::ring
