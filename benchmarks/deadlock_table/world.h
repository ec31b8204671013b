// World: GPUs in groups, and the collectives of each group, for the deadlock simulator (main.cc). A
// GPU can be in several groups. The collectives of the world are numbered, group after group. Plain
// values; they do not change during a simulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pccl::deadlock_table {

struct Group {
  std::vector<uint32_t> gpus;  // in ascending order
  uint32_t count = 0;          // of its collectives
  uint32_t first = 0;          // the number of its first collective
  uint32_t everybody = 0;      // the bits of all its members
};

// One collective, as one of its GPUs calls it.
struct Call {
  uint32_t collective = 0;
  uint16_t group = 0;
  uint16_t member = 0;  // the position of the GPU in the group
};
using Calls = std::vector<Call>;

struct World {
  std::vector<Group> groups;
  size_t gpus = 0;
  size_t collectives = 0;
  // Of each GPU: its memberships, each as the call of the first collective of the group.
  std::vector<Calls> memberships;

  // Reads lines "COUNT GPU GPU ...", one for each group. Returns nothing if a line is no group.
  static std::optional<World> read(const std::string& text);

  // The calls of this GPU: group after group, or the first of all its groups, then the second, and
  // so on.
  Calls concatenated(uint32_t gpu) const;
  Calls interleaved(uint32_t gpu) const;
};

}  // namespace pccl::deadlock_table
