// drift: decides whether a member drifts: whether a sync_shared_state has corrected the bits that
// the member has computed in its last step (PROTOCOL.md, section 5.3). The master and the member
// decide this from their own data, and both decide the same, so no message has it. Pure functions:
// any thread may call them. They describe a fact and refuse nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/protocol/messages.h"
#include "csrc/protocol/state.h"

namespace pccl::protocol {

// The entry in which the trainers of pccl share their counters. It may differ between members that
// have computed the same bits: the counters also contain their next step.
inline constexpr std::string_view kProgressKey = "progress";

// The last correction of a member that drifts.
struct Drift {
  uint64_t revision = 0;  // of the elected state
  std::string keys;       // text: the first of the corrected keys, and the number of further ones
  uint64_t bytes = 0;     // of the corrected entries
  uint64_t count = 0;     // corrections of this member so far, this one included
  bool operator==(const Drift&) const = default;
};

// The positions of the elected entries that `own` has with another content, ascending. Entries that
// `own` does not have are not among them.
std::vector<uint32_t> differing(const StateEntries& own, const StateEntries& elected);

// A member that lacks entries of the elected state.
struct Correction {
  // The revision that the last sync_shared_state agreed on, if it has left the member with this
  // state; none if the member was not there.
  std::optional<uint64_t> last;
  const Offer& offer;
  const StateEntries& own;  // the entries of the offer
  uint64_t revision = 0;    // of the elected state
  const StateEntries& elected;
};

// The drift of the member, with a count of 0. Nothing in these cases: the member was not there at
// the last agreement; it has offered another revision than the next one, so it has missed a step;
// it has another strategy than enforce_popular; only kProgressKey differs.
std::optional<Drift> drift_of(const Correction& correction);

// Whether a log gets a warning at this count: at the first correction, then at growing intervals,
// because a member that drifts may be corrected at each step of a long run. REQUIRES: not 0.
bool is_announced(uint64_t count);

// The fact, for warnings and diagnoses. `whom`: "rank 2 (tokyo-3)", "this process".
std::string drift_text(const std::string& whom, const Drift& drift);
// The next step of a person.
inline constexpr const char* kDriftAdvice =
    "look for a faulty machine, another kind of processor or GPU, or code that is not "
    "deterministic (docs/running.md, section 6)";
// The text of a log line: the fact and the next step.
std::string drift_warning(const std::string& whom, const Drift& drift);

}  // namespace pccl::protocol
