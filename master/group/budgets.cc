#include "master/group/budgets.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "master/group/ballot.h"
#include "master/group/group_view.h"
#include "master/members/membership.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

struct Budget {
  std::string name, plural;
  uint64_t (*of)(const protocol::Vote& vote);
  std::string (*text)(uint64_t budget);
};

std::string seconds_text(uint64_t milliseconds) {
  return text(Duration(std::chrono::milliseconds(milliseconds)));
}

std::string bytes_text(uint64_t bytes) { return bytes == 0 ? "no limit" : std::to_string(bytes); }

Ruling rule_on(const Budget& budget, const GroupView& view) {
  std::map<uint64_t, std::vector<uint32_t>> ranks;
  std::optional<uint64_t> right;
  bool others_differ = false;
  for (const PeerId member : view.membership.members()) {
    const uint64_t given = budget.of(view.ballot.vote(member));
    ranks[given].push_back(*view.membership.rank(member));
    if (view.membership.is_newcomer(member)) continue;
    others_differ = others_differ || (right && *right != given);
    right = given;
  }
  Ruling ruling;
  if (ranks.size() == 1) return ruling;
  std::string why = "ranks gave optimize_topology different " + budget.plural + ": ";
  for (const auto& [given, who] : ranks) {
    if (given != ranks.begin()->first) why += "; ";
    why += view.membership.ranks_text(who) + " gave " + budget.text(given);
  }
  why += ". All ranks must give the same " + budget.name;
  if (right && !others_differ) {
    for (const PeerId member : view.membership.newcomers()) {
      if (budget.of(view.ballot.vote(member)) != *right) ruling.misfits.push_back({member, why});
    }
  } else {
    ruling.answer.emplace();
    ruling.answer->code = Code::kMismatch;
    ruling.answer->text = cut(why, protocol::kTextBytesMax);
  }
  PCCL_ASSERT(!ruling.empty());
  return ruling;
}

}  // namespace

Ruling rule_on_budgets(const GroupView& view) {
  const Budget time{"budget", "budgets", [](const auto& vote) { return uint64_t{vote.budget_ms}; },
                    seconds_text};
  const Budget bytes{"max_bytes", "max_bytes", [](const auto& vote) { return vote.max_bytes; },
                     bytes_text};
  Ruling ruling = rule_on(time, view);
  return ruling.empty() ? rule_on(bytes, view) : ruling;
}

}  // namespace pccl::master
