// LossCause: why a group has lost a member, as one of a few causes that /metrics can count. The log
// has the whole sentence. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pccl::master {

// The names are public: a program may compare them, so none is ever renamed.
enum class LossCause : uint8_t {
  kLeft,        // by its own decision
  kConnection,  // its process ended, or its network broke
  kSilence,     // it was silent for peer_timeout
  kLink,        // its link to another member stayed down
  kRemoved,     // by the master: it broke a rule, was late, or lost its token
  kEnded,       // the run or the master ended
};
inline constexpr size_t kLossCauses = 6;

constexpr const char* text(LossCause cause) {
  switch (cause) {
    case LossCause::kLeft: return "left";
    case LossCause::kConnection: return "connection";
    case LossCause::kSilence: return "silence";
    case LossCause::kLink: return "link";
    case LossCause::kRemoved: return "removed";
    case LossCause::kEnded: return "ended";
  }
  return "";
}

}  // namespace pccl::master
