// version: the versions of the protocol that a program speaks, the version that two programs have
// in common, and the sentence for people when there is none. A program speaks a range of versions.
// A run speaks one version from its first peer to its end: the highest that this peer and the
// master had in common. Pure functions: any thread may call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pccl::protocol {

// From `lowest` to `highest`, both included.
struct VersionRange {
  uint16_t lowest = 0;
  uint16_t highest = 0;
  bool contains(uint16_t version) const { return lowest <= version && version <= highest; }
  bool operator==(const VersionRange&) const = default;
};

// The versions that this build speaks. A build for tests has other numbers (CMake: PCCL_VERSION_MIN
// and PCCL_VERSION_MAX).
extern const VersionRange kSpoken;
// The release of this pccl: "0.1.0".
extern const char* const kRelease;

// Returns the highest version that both speak, if there is one.
std::optional<uint16_t> common(const VersionRange& one, const VersionRange& other);

// "version 8", "versions 8 to 9".
std::string text(const VersionRange& versions);

// A party that speaks these versions, and the remedy if they are too old.
struct Speaker {
  std::string name;
  VersionRange versions;
  std::string remedy = "install a later pccl for " + name;
};
Speaker speaker_of_run(const std::string& name, uint16_t version);
// Returns the error text for two programs without a common version, with advice for the older one.
// REQUIRES: they have none.
std::string mismatch(const Speaker& one, const Speaker& other);

}  // namespace pccl::protocol
