// PlanCall: an optimize_topology from the side of its voters (PROTOCOL.md, section 5.4): when it
// measures, whether all gave the same budgets, and its answer. Optimization measures and plans.
// Group owns one, and carries out its rulings.
#pragma once

#include <string>

#include "master/group/ruling.h"

namespace pccl::master {

class Epochs;
class Optimization;
struct Context;
struct GroupView;

class PlanCall {
 public:
  PlanCall(const GroupView& view, Context& context, Epochs& epochs, Optimization& optimization)
      : view_(view), context_(context), epochs_(epochs), optimization_(optimization) {}

  // Takes the next step that is due, if all have voted. A better plan ends the epoch.
  Ruling advance();
  // A member gives up the call, and it ends for all.
  Ruling give_up() const;
  static constexpr const char* kBetterPlan = "another ring is predicted to be faster";
  // Returns the operations that the call waits for when all have voted, as text; empty if there are
  // none.
  std::string waits_for() const;
  // Whether another plan is faster than the present one by enough. If so, the next epoch begins
  // with the faster plan. REQUIRES: update_topology would change nothing else.
  bool finds_better_plan();

 private:
  Ruling end();

  const GroupView& view_;
  Context& context_;
  Epochs& epochs_;
  Optimization& optimization_;
};

}  // namespace pccl::master
