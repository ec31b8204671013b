// Misfit: a member that behaves differently from all other members, and the reason. Operations, the
// ballot, the election and OverdueMembers find misfits; a newcomer that is a misfit loses its
// membership (promise P7). A plain value.
#pragma once

#include <string>

#include "csrc/base/ids.h"

namespace pccl::master {

struct Misfit {
  PeerId peer;
  std::string why;
  bool may_be_call = true;  // the cause may be a first call that is late or different
  bool operator==(const Misfit&) const = default;
};

}  // namespace pccl::master
