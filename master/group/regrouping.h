// Regrouping: a reconfigure among the members of one run (PROTOCOL.md, section 2.1). The rendezvous
// of the process has collected their calls. The group goes on with the listed members alone, in the
// listed order. If that is not possible, or one of them is lost before their epoch begins, the
// others get the reason. Group owns it.
// Invariant: while one is under way, all listed ones are members, and have no open vote; a change
// of the epochs is under way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/ids.h"

namespace pccl::master {

class Connections;
class Epochs;
class PresentEpoch;
struct Context;
struct GroupView;

struct Regroup {
  int64_t uuid = 0;
  std::vector<PeerId> members;  // in the order of their ranks
};

class Regrouping {
 public:
  Regrouping(const GroupView& view, Context& context, Connections& connections,
             PresentEpoch& present, Epochs& epochs)
      : view_(view),
        context_(context),
        connections_(connections),
        present_(present),
        epochs_(epochs) {}

  bool under_way() const { return agreed_.has_value(); }
  // Ends all operations, and returns the members that are not listed: the group has to remove them,
  // and to call begin() then. REQUIRES: none is under way.
  std::vector<PeerId> agree(Regroup agreed);
  std::string why_left_out() const { return name() + " has not listed it"; }  // REQUIRES: under way
  void begin();  // does nothing if it is not possible
  void lose(PeerId peer, const std::string& why);
  void begun();  // an epoch of a new generation has begun

  void check() const;  // asserts the invariant

 private:
  std::string why_not(const Regroup& agreed) const;
  std::string name() const { return "reconfigure (uuid " + std::to_string(agreed_->uuid) + ")"; }
  bool lists(PeerId peer) const;
  void fail(const std::string& why);

  const GroupView& view_;
  Context& context_;
  Connections& connections_;
  PresentEpoch& present_;
  Epochs& epochs_;
  std::optional<Regroup> agreed_;
};

}  // namespace pccl::master
