#include "master/operator/summary.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

size_t members_of(const RunRecord& run) {
  size_t members = 0;
  for (const auto& [id, group] : run.memberships) members += group.members.size();
  return members;
}

// "no shared state", "shared state at revision 120", "shared states: group 0 at revision 120, ..."
std::string states_of(const RunRecord& run) {
  const auto& states = run.shared_states;
  if (states.empty()) return "no shared state";
  if (states.size() == 1 && states.begin()->first == GroupId{}) {
    return "shared state at revision " + std::to_string(states.begin()->second.revision);
  }
  std::string out = "shared states: ";
  size_t named = 0;
  for (const auto& [id, state] : states) {
    if (named == kGroupsSummedUp) break;
    out += (named++ == 0 ? "group " : ", group ") + std::to_string(id.value) + " at revision " +
           std::to_string(state.revision);
  }
  if (named < states.size()) out += ", and " + count_text(states.size() - named, "more group");
  return out;
}

}  // namespace

std::vector<std::string> summary(const Memory& memory, const protocol::VersionRange& spoken) {
  std::vector<std::string> going_on, finished;
  size_t members = 0;
  for (const auto& [name, run] : memory.runs) {
    const bool continues = !run.ended && spoken.contains(run.version);
    const size_t expected = continues ? members_of(run) : 0;
    members += expected;
    (continues ? going_on : finished)
        .push_back("run \"" + printable(name) + "\": " +
                   (continues ? count_text(expected, "member") + " may come back" : "finished") +
                   ", " + states_of(run));
  }
  const size_t runs = going_on.size() + finished.size();
  if (runs == 0) return {"it knows no runs so far"};
  std::vector<std::string> lines = {"it knows " + count_text(runs, "run") + ": " +
                                    std::to_string(going_on.size()) + " going on with " +
                                    count_text(members, "member") + ", " +
                                    std::to_string(finished.size()) + " finished"};
  going_on.insert(going_on.end(), finished.begin(), finished.end());
  const size_t named = std::min(runs, kRunsSummedUp);
  lines.insert(lines.end(), going_on.begin(), going_on.begin() + static_cast<ptrdiff_t>(named));
  if (named < runs) {
    lines.push_back("and " + count_text(runs - named, "more run") + ": `pccl runs` lists them all");
  }
  return lines;
}

}  // namespace pccl::master
