#include "csrc/protocol/version.h"

#include <algorithm>

#include "csrc/base/assert.h"

// CMake passes PCCL_RELEASE, PCCL_VERSION_MIN and PCCL_VERSION_MAX to this file alone, so that a
// build with other numbers recompiles nothing else.
#ifndef PCCL_RELEASE
#error "PCCL_RELEASE, PCCL_VERSION_MIN and PCCL_VERSION_MAX come from CMakeLists.txt"
#endif

namespace pccl::protocol {

static_assert(0 < PCCL_VERSION_MIN && PCCL_VERSION_MIN <= PCCL_VERSION_MAX &&
                  PCCL_VERSION_MAX <= UINT16_MAX,
              "a build speaks a range of versions");

constinit const VersionRange kSpoken{PCCL_VERSION_MIN, PCCL_VERSION_MAX};
constinit const char* const kRelease = PCCL_RELEASE;

std::optional<uint16_t> common(const VersionRange& one, const VersionRange& other) {
  const uint16_t highest = std::min(one.highest, other.highest);
  if (one.contains(highest) && other.contains(highest)) return highest;
  return std::nullopt;
}

std::string text(const VersionRange& versions) {
  const std::string lowest = std::to_string(versions.lowest);
  if (versions.lowest == versions.highest) return "version " + lowest;
  return "versions " + lowest + " to " + std::to_string(versions.highest);
}

Speaker speaker_of_run(const std::string& name, uint16_t version) {
  return {name,
          {version, version},
          name +
              " keeps its version until it ends, so install the pccl that its other peers have, "
              "or name another run"};
}

std::string mismatch(const Speaker& one, const Speaker& other) {
  PCCL_ASSERT(!common(one.versions, other.versions));
  const Speaker& older = one.versions.highest < other.versions.highest ? one : other;
  return "version mismatch: " + one.name + " speaks " + text(one.versions) +
         " of the pccl protocol, " + other.name + " speaks " + text(other.versions) + ": " +
         older.remedy;
}

}  // namespace pccl::protocol
