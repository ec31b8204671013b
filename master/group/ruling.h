// Ruling: the outcome of a comparison of the members' calls. The parts of a Group that compare
// return one, and the Group carries it out.
#pragma once

#include <optional>
#include <vector>

#include "csrc/protocol/messages.h"
#include "master/members/misfit.h"

namespace pccl::master {

struct Ruling {
  std::vector<Misfit> misfits;             // the members to remove
  std::optional<protocol::Answer> answer;  // ends the open ballot for all
  bool empty() const { return misfits.empty() && !answer; }
};

}  // namespace pccl::master
