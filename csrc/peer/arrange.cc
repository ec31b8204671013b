#include "csrc/peer/arrange.h"

#include <string>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::peer {
namespace {

Status other_ranks(size_t world, size_t room) {
  return {Code::kMembershipChanged,
          "there are " + std::to_string(world) + " ranks now, and room for " +
              std::to_string(room) + ": look at the new ranks and call it again",
          {}};
}

Status check_size(size_t given, uint64_t bytes) {
  if (given == bytes) return {};
  return {Code::kInvalidArgument,
          "a tensor of " + std::to_string(bytes) + " bytes, given as " + std::to_string(given) +
              " bytes of memory",
          {}};
}

template <typename Span>
Status check_one(const std::vector<Span>& spans, uint64_t bytes) {
  if (spans.size() != 1) return other_ranks(1, spans.size());
  return check_size(spans[0].size(), bytes);
}

// Cuts one span with the blocks of all ranks into one span per block.
template <typename Span>
void split(std::vector<Span>& spans, uint64_t block, size_t world) {
  if (spans.size() != 1 || world == 1 || spans[0].size() != block * world) return;
  const Span whole = spans[0];
  spans.clear();
  for (size_t rank = 0; rank < world; ++rank) spans.push_back(whole.subspan(rank * block, block));
}

template <typename Span>
Status arrange_blocks(std::vector<Span>& spans, uint64_t bytes,
                      const std::vector<uint32_t>& order) {
  split(spans, bytes, order.size());
  if (spans.size() != order.size()) return other_ranks(order.size(), spans.size());
  for (const Span& span : spans) {
    const Status status = check_size(span.size(), bytes);
    if (!status.ok()) return status;
  }
  const std::vector<Span> by_rank = spans;
  for (size_t index = 0; index < order.size(); ++index) spans[index] = by_rank[order[index]];
  return {};
}

// Makes a list with one span for each part; `bytes_of` returns the size of a part. `spans` has one
// span per rank, or only one span, which is then the span of every part that has bytes.
template <typename Span, typename BytesOf>
Status arrange_parts(std::vector<Span>& spans, const ring::Task& task,
                     const std::vector<uint32_t>& order, BytesOf bytes_of) {
  std::vector<Span> arranged;
  for (size_t index = 0; index < order.size(); ++index) {
    const uint64_t bytes = bytes_of(task.parts[index]);
    arranged.emplace_back();
    if (bytes == 0) continue;
    const size_t at = spans.size() == 1 ? 0 : order[index];
    const bool missing = spans.size() != 1 && spans.size() != order.size();
    if (missing) return other_ranks(order.size(), spans.size());
    const Status status = check_size(spans[at].size(), bytes);
    if (!status.ok()) return status;
    arranged.back() = spans[at];
  }
  spans = std::move(arranged);
  return {};
}

Status arrange_direct(ring::Memory& memory, const ring::Task& task,
                      const std::vector<uint32_t>& order) {
  const ring::Shape& shape = task.shape;
  split(memory.spans, shape.count * shape.element_bytes, order.size());
  const uint32_t own = order[shape.rank];
  // This rank's block is in its place in the result.
  if (memory.inputs.empty() && !memory.spans.empty())
    memory.inputs = {memory.spans[own < memory.spans.size() ? own : 0]};
  const Status status =
      arrange_parts(memory.inputs, task, order, [](const ring::Part& part) { return part.to; });
  if (!status.ok()) return status;
  return arrange_parts(memory.spans, task, order, [](const ring::Part& part) { return part.from; });
}

}  // namespace

Result<ring::Memory> arrange(ring::Memory lent, const ring::Task& task, uint64_t start,
                             const std::vector<uint32_t>& order) {
  const ring::Shape& shape = task.shape;
  const ring::PatternRow& row = ring::row_of(shape.pattern);
  // The size of the application's tensor. Elements before `start` are final already and are not
  // touched.
  const uint64_t bytes = (start + shape.count) * shape.element_bytes;
  const bool in_place = lent.inputs.empty();
  PCCL_ASSERT(start == 0 || in_place);
  Status status;
  if (row.reduces && !in_place) {
    status = arrange_blocks(lent.inputs, bytes, order);
    if (status.ok()) status = check_one(lent.spans, bytes);
  } else if (!row.reduces && !task.parts.empty()) {
    status = arrange_direct(lent, task, order);
  } else if (row.is_per_rank()) {
    status = arrange_blocks(lent.spans, bytes, order);
    if (status.ok() && !in_place) status = check_one(lent.inputs, bytes);
  } else {
    status = check_one(lent.spans, bytes);
    if (status.ok()) lent.spans[0] = lent.spans[0].subspan(start * shape.element_bytes);
  }
  if (!status.ok()) return status;
  return lent;
}

}  // namespace pccl::peer
