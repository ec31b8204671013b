#include "benchmarks/deadlock_table/world.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include "csrc/protocol/limits.h"

namespace pccl::deadlock_table {
namespace {

constexpr size_t kGroupMax = std::numeric_limits<decltype(Group::everybody)>::digits;

std::optional<Group> read_group(const std::string& line) {
  std::istringstream words(line);
  Group group;
  words >> group.count;
  for (uint32_t gpu = 0; words >> gpu;) {
    if (gpu >= protocol::kMembersMax) return std::nullopt;
    group.gpus.push_back(gpu);
  }
  const size_t size = group.gpus.size();
  const bool ascending =
      std::is_sorted(group.gpus.begin(), group.gpus.end(), std::less_equal<uint32_t>());
  if (!words.eof() || group.count == 0 || size < 2 || size > kGroupMax || !ascending)
    return std::nullopt;
  group.everybody = static_cast<uint32_t>((uint64_t{1} << size) - 1);
  return group;
}

}  // namespace

std::optional<World> World::read(const std::string& text) {
  World world;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::optional<Group> group = read_group(line);
    if (!group) return std::nullopt;
    group->first = static_cast<uint32_t>(world.collectives);
    world.collectives += group->count;
    world.gpus = std::max<size_t>(world.gpus, group->gpus.back() + 1);
    world.groups.push_back(std::move(*group));
  }
  if (world.groups.empty()) return std::nullopt;
  world.memberships.resize(world.gpus);
  for (uint16_t number = 0; number < world.groups.size(); ++number) {
    const Group& group = world.groups[number];
    for (uint16_t member = 0; member < group.gpus.size(); ++member)
      world.memberships[group.gpus[member]].push_back({group.first, number, member});
  }
  return world;
}

Calls World::concatenated(uint32_t gpu) const {
  Calls calls;
  for (Call call : memberships[gpu]) {
    for (uint32_t i = 0; i < groups[call.group].count; ++i, ++call.collective)
      calls.push_back(call);
  }
  return calls;
}

Calls World::interleaved(uint32_t gpu) const {
  uint32_t most = 0;
  for (const Call& call : memberships[gpu]) most = std::max(most, groups[call.group].count);
  Calls calls;
  for (uint32_t i = 0; i < most; ++i) {
    for (Call call : memberships[gpu]) {
      call.collective += i;
      if (i < groups[call.group].count) calls.push_back(call);
    }
  }
  return calls;
}

}  // namespace pccl::deadlock_table
