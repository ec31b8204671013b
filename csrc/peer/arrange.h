// arrange: puts the memory that the application has lent to an operation into the order that the
// ring uses. The application counts by rank, the ring often by ring index, and the form of the
// operation on the ring decides which spans it needs. A pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/ring/lent_memory.h"
#include "csrc/ring/task.h"

namespace pccl::peer {

// `lent` has, for the collective of the task:
//   all_reduce, broadcast, reduce   spans: the tensor
//   send, recv                      spans: the tensor
//   all_gather                      spans: a block per rank, or one span with all of them.
//                                   inputs: the block of this rank; none: it is in its place
//   reduce_scatter                  spans: the result. inputs: a block per rank
//   gather                          inputs: the tensor. spans, on the root: a block per rank
//   scatter                         spans: the result. inputs, on the root: a block per rank
//   all_to_all                      spans, inputs: a block per rank
// The elements before `start` are not touched. `order[i]` is the rank at index i of the task.
// kMembershipChanged if there is memory for a different number of ranks; kInvalidArgument if a span
// and its block have different sizes.
Result<ring::Memory> arrange(ring::Memory lent, const ring::Task& task, uint64_t start,
                             const std::vector<uint32_t>& order);

}  // namespace pccl::peer
