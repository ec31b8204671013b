// resumption: the operator's word that a run goes on from an older state than the one it agreed on
// last (pccl master --resume-from). Pure: what is to be recorded for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "master/journal.h"

namespace pccl::master {

struct Resumption {
  uint64_t revision = 0;
  uint64_t hash = 0;
  std::string run;  // empty: the only one there is
  GroupId group;
};

// "120:00c0ffee00c0ffee": a revision, and the hash of the shared state at it in hexadecimal, as
// error messages and pccl.sync_shared_state show them. Nothing if it is none.
std::optional<Resumption> parse_resumption(const std::string& text);

// Whoever is still a member in the journal is out of the run by it. `new_run_id`: for a run that
// the journal does not know. kInvalidArgument if it is not clear which run is meant.
Result<std::vector<Entry>> resume_from(const Memory& memory, const Resumption& where,
                                       uint64_t new_run_id);

}  // namespace pccl::master
