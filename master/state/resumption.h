// resumption: the operator's request to continue a run from a state other than the last agreed one
// (pccl master --resume-from). Pure: computes the journal entries for this request.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/base/result.h"
#include "master/runs/journal.h"

namespace pccl::master {

struct Resumption {
  uint64_t revision = 0;
  uint64_t hash = 0;
  std::string run;  // empty: the only run in the journal
  GroupId group;
};

// Parses "120:00c0ffee00c0ffee": a revision, and the hash of the shared state at that revision in
// hexadecimal, as error messages and pccl.sync_shared_state show them. Nothing if the text is
// malformed.
std::optional<Resumption> parse_resumption(const std::string& text);

// Returns entries that remove all members of the group and record the state. `new_run_id`: for a
// run that the journal does not know. kInvalidArgument if it is not clear which run is meant.
Result<std::vector<Entry>> resume_from(const Memory& memory, const Resumption& where,
                                       uint64_t new_run_id);

}  // namespace pccl::master
