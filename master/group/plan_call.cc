#include "master/group/plan_call.h"

#include <utility>

#include "master/context.h"
#include "master/epochs/epochs.h"
#include "master/epochs/operation_waits.h"
#include "master/group/ballot.h"
#include "master/group/budgets.h"
#include "master/group/group_view.h"
#include "master/group/optimization.h"
#include "master/group/wait_texts.h"
#include "master/text_format.h"

namespace pccl::master {

using protocol::JointKind;

Ruling PlanCall::advance() {
  const bool due = epochs_.phase() == Epochs::Phase::kActive &&
                   view_.ballot.is_complete(JointKind::kOptimizeTopology);
  if (!due) return {};
  if (optimization_.adopting()) return end();
  const protocol::EpochStart& now = view_.present.start();
  if (optimization_.idle()) {
    Ruling ruling = rule_on_budgets(view_);
    if (!ruling.empty()) return ruling;
    const protocol::Vote& any = view_.ballot.vote(view_.membership.members()[0]);
    optimization_.begin(std::chrono::milliseconds(any.budget_ms), any.max_bytes);
  }
  if (optimization_.waits()) {
    if (!waits_for().empty()) return {};
    optimization_.measure(now);
  }
  if (!optimization_.advance(now)) return {};
  if (optimization_.is_too_late()) {
    protocol::Answer late;
    late.code = Code::kTopology;
    late.text = "the master has found no plan within " + text(Optimization::kPlanningMax) +
                ", so the present one stays. The measurements are kept: call it again when the "
                "machine of the master is less busy";
    return {{}, std::move(late)};
  }
  auto better = optimization_.take_plan(now);
  if (!better) return end();
  optimization_.adopt();
  epochs_.plan(std::move(*better));
  epochs_.renew();
  return {};
}

Ruling PlanCall::end() {
  protocol::Answer answer;
  answer.plan = optimization_.result(view_.present.start());
  const auto& plan = *answer.plan;
  const LogEvent event = plan.adopted ? LogEvent::kPlanAdopted : LogEvent::kPlanMeasured;
  context_.log(LogLevel::kInfo, {event, view_.id},
               "optimize_topology" + group_text(view_.id) + " has measured " +
                   count_text(plan.measured.size(), "pair") + " and has " +
                   (plan.adopted ? "adopted another plan" : "kept the plan") +
                   (plan.note.empty() ? "" : ": " + plan.note));
  return {{}, std::move(answer)};
}

Ruling PlanCall::give_up() const {
  const auto missing = view_.ballot.missing();
  const std::string why =
      missing.empty() ? waits_for() : "it waited for " + WaitTexts(view_).missing(missing);
  return {{}, Ballot::timeout(why)};
}

std::string PlanCall::waits_for() const {
  const std::string operation =
      optimization_.waits() ? view_.present.waits().under_way() : std::string();
  return operation.empty() ? "" : "for " + operation + " to end";
}

bool PlanCall::finds_better_plan() {
  if (epochs_.phase() != Epochs::Phase::kActive || epochs_.needs_reconfiguration()) return false;
  auto better = optimization_.better_plan(view_.present.start());
  if (!better) return false;
  context_.log(LogLevel::kInfo, {LogEvent::kPlanFound, view_.id},
               kBetterPlan + group_text(view_.id, " for"));
  epochs_.plan(std::move(*better));
  return true;
}

}  // namespace pccl::master
