// The part of a Group for optimize_topology (PROTOCOL.md, section 5.4): it compares the budgets of
// the voters, carries a better plan to the epochs, and answers. The decisions about
// measuring and planning are in optimization.cc.

#include <algorithm>
#include <map>
#include <utility>

#include "csrc/base/assert.h"
#include "master/group/group.h"
#include "master/text_format.h"

namespace pccl::master {

using protocol::Answer;
using protocol::JointKind;

namespace {

constexpr auto kOptimize = JointKind::kOptimizeTopology;

std::string seconds_text(uint64_t milliseconds) {
  return text(Duration(std::chrono::milliseconds(milliseconds)));
}

std::string bytes_text(uint64_t bytes) { return bytes == 0 ? "no limit" : std::to_string(bytes); }

}  // namespace

// A budget of the call, which all voters have to give alike.
struct Group::Budget {
  std::string name, plural;
  uint64_t (*of)(const protocol::Vote& vote);
  std::string (*text)(uint64_t budget);
};

// If all members but newcomers gave one budget, the newcomers that gave another one are wrong.
// Otherwise the call fails for all. False: the votes do not stand.
bool Group::agree_on(const Budget& budget) {
  std::map<uint64_t, std::vector<uint32_t>> ranks;
  std::optional<uint64_t> right;
  bool others_differ = false;
  for (const PeerId member : membership_.members()) {
    const uint64_t given = budget.of(ballot_.vote(member));
    ranks[given].push_back(*membership_.rank(member));
    if (membership_.is_newcomer(member)) continue;
    others_differ = others_differ || (right && *right != given);
    right = given;
  }
  if (ranks.size() == 1) return true;
  std::string why = "ranks gave optimize_topology different " + budget.plural + ": ";
  for (const auto& [given, who] : ranks) {
    if (given != ranks.begin()->first) why += "; ";
    why += membership_.ranks_text(who) + " gave " + budget.text(given);
  }
  why += ". All ranks must give the same " + budget.name;
  if (right && !others_differ) {
    std::vector<PeerId> wrong;
    for (const PeerId member : membership_.newcomers()) {
      if (budget.of(ballot_.vote(member)) != *right) wrong.push_back(member);
    }
    for (const PeerId member : wrong) remove({member, why});
    return false;
  }
  Answer mismatch;
  mismatch.code = Code::kMismatch;
  mismatch.text = cut(why, protocol::kTextBytesMax);
  answer(mismatch);
  return false;
}

bool Group::budgets_agree() {
  const Budget time{"budget", "budgets", [](const auto& vote) { return uint64_t{vote.budget_ms}; },
                    seconds_text};
  const Budget bytes{"max_bytes", "max_bytes", [](const auto& vote) { return vote.max_bytes; },
                     bytes_text};
  return agree_on(time) && agree_on(bytes);
}

void Group::advance_optimization() {
  if (epochs_.phase() != Epochs::Phase::kActive || !ballot_.is_complete(kOptimize)) return;
  if (optimization_.adopting()) return end_optimization();
  const protocol::EpochStart& now = epochs_.start_of_epoch();
  if (optimization_.idle()) {
    if (!budgets_agree()) return;
    const protocol::Vote& any = ballot_.vote(membership_.members()[0]);
    optimization_.begin(std::chrono::milliseconds(any.budget_ms), any.max_bytes);
  }
  if (optimization_.waits()) {
    if (!epochs_.operations().under_way().empty()) return;
    optimization_.measure(now);
  }
  if (!optimization_.advance(now)) return;
  if (optimization_.is_too_late()) {
    Answer late;
    late.code = Code::kTopology;
    late.text = "the master has found no plan within " + text(Optimization::kPlanningMax) +
                ", so the present one stays. The measurements are kept: call it again when the "
                "machine of the master is less busy";
    return answer(late);
  }
  auto better = optimization_.take_plan(now);
  if (!better) return end_optimization();
  optimization_.adopt();
  epochs_.plan(std::move(*better));
  epochs_.renew();
}

void Group::end_optimization() {
  Answer answer;
  answer.plan = optimization_.result(epochs_.start_of_epoch());
  const auto& plan = *answer.plan;
  context_.log(LogLevel::kInfo, "optimize_topology" + group_text(id_) + " has measured " +
                                    count_text(plan.measured.size(), "pair") + " and has " +
                                    (plan.adopted ? "adopted another plan" : "kept the plan") +
                                    (plan.note.empty() ? "" : ": " + plan.note));
  this->answer(answer);
}

void Group::give_up_optimization() {
  const auto missing = ballot_.missing();
  const std::string why =
      missing.empty() ? optimization_waits_for() : "it waited for " + missing_text(missing);
  answer(Ballot::timeout(why));
}

std::string Group::optimization_waits_for() const {
  const std::string operation =
      optimization_.waits() ? epochs_.operations().under_way() : std::string();
  return operation.empty() ? "" : "for " + operation + " to end";
}

bool Group::finds_better_plan() {
  if (epochs_.phase() != Epochs::Phase::kActive || epochs_.needs_reconfiguration()) return false;
  auto better = optimization_.better_plan(epochs_.start_of_epoch());
  if (!better) return false;
  context_.log(LogLevel::kInfo, "another ring is predicted to be faster" + group_text(id_, " for"));
  epochs_.plan(std::move(*better));
  return true;
}

}  // namespace pccl::master
