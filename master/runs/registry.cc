#include "master/runs/registry.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/protocol/limits.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

using protocol::Reject;

constexpr const char* kRoomNeeded =
    "this master needed the room for another run: it had not begun, and most of those that had not "
    "came from its network";

Reject full(std::string text) { return {Code::kInvalidState, std::move(text)}; }

// For each state: "group 0 at revision 120 with hash 00c0ffee00c0ffee".
std::string states_text(const std::vector<SharedStateRecord>& states) {
  std::string out;
  const size_t named = std::min(states.size(), protocol::kRanksNamedMax);
  for (size_t i = 0; i < named; ++i) {
    out += (i == 0 ? "group " : ", group ") + std::to_string(states[i].group.value) +
           " at revision " + std::to_string(states[i].revision) + " with hash " +
           hash_text(states[i].hash);
  }
  if (states.size() > named) out += " and " + std::to_string(states.size() - named) + " more";
  return out;
}

}  // namespace

const char* text(Registry::Phase phase) {
  switch (phase) {
    case Registry::Phase::kFounding: return "founding";
    case Registry::Phase::kTraining: return "training";
    case Registry::Phase::kAway: return "away";
    case Registry::Phase::kFinished: return "finished";
  }
  return "unknown";
}

// ---- Indexes ----

Registry::Phase Registry::phase(const Living& living) {
  if (!living.founded) return Phase::kFounding;
  return living.connections > 0 ? Phase::kTraining : Phase::kAway;
}

size_t Registry::weight(const FinishedRun& line) {
  return std::max<size_t>(
      1, (line.states.size() + protocol::kStatesPerLine - 1) / protocol::kStatesPerLine);
}

void Registry::weigh(const std::string& origin, size_t weight, bool in) {
  Origin& of = origins_[origin];
  PCCL_ASSERT(weight > 0 && (in || (of.weight >= weight && weight_ >= weight)));
  of.weight = in ? of.weight + weight : of.weight - weight;
  weight_ = in ? weight_ + weight : weight_ - weight;
  if (of.weight == 0) origins_.erase(origin);
}

void Registry::enlist(const std::string& run, const Living& living, bool in) {
  const auto origin = origins_.find(living.origin);
  PCCL_ASSERT(origin != origins_.end());
  Origin& of = origin->second;
  const auto book = [&](Names& names) {
    const size_t changed = in ? names.emplace(living.begun, run).second : names.erase(living.begun);
    PCCL_ASSERT(changed == 1);
  };
  if (!living.founded) book(living.connections > 0 ? of.founding : of.founding_alone);
  if (phase(living) == Phase::kAway) book(away_);
  PCCL_ASSERT(in || living.connections == 0 || connected_ > 0);
  if (living.connections > 0) connected_ = in ? connected_ + 1 : connected_ - 1;
  if (living.ends && !living.founded) {
    const size_t changed =
        in ? ends_.emplace(*living.ends, run).second : ends_.erase({*living.ends, run});
    PCCL_ASSERT(changed == 1);
  }
}

template <typename F>
void Registry::change(const std::string& run, F&& how) {
  const auto at = living_.find(run);
  PCCL_ASSERT(at != living_.end());
  enlist(run, at->second, false);
  how(at->second);
  enlist(run, at->second, true);
}

void Registry::add_line(const std::string& run, FinishedRun line, Age age) {
  PCCL_ASSERT(!living_.contains(run) && !lines_.contains(run));
  weigh(line.origin, weight(line), true);
  const bool fresh = by_age_.emplace(age, run).second;
  PCCL_ASSERT(fresh);
  if (line.states.empty()) {
    stateless_.emplace(age, run);
    origins_[line.origin].stateless.emplace(age, run);
  }
  lines_[run] = {std::move(line), age};
}

Registry::Line Registry::take_line(const std::string& run) {
  const auto at = lines_.find(run);
  PCCL_ASSERT(at != lines_.end());
  Line line = std::move(at->second);
  lines_.erase(at);
  const size_t found = by_age_.erase(line.age);
  PCCL_ASSERT(found == 1);
  stateless_.erase(line.age);
  origins_[line.run.origin].stateless.erase(line.age);
  weigh(line.run.origin, weight(line.run), false);
  return line;
}

Registry::Forget Registry::forgotten(const std::string& run, std::string why) {
  FinishedRun line = take_line(run).run;
  if (!line.states.empty()) why += "; it had agreed on " + states_text(line.states);
  return {run, std::move(line), std::move(why)};
}

// ---- Room ----

std::optional<Registry::Decision> Registry::one_of_origin(const Origin& origin) {
  if (!origin.founding_alone.empty())
    return End{origin.founding_alone.begin()->second, kRoomNeeded};
  if (!origin.stateless.empty()) {
    // a copy: forgotten() erases the original
    const std::string run = origin.stateless.begin()->second;
    return forgotten(run, "its network has the most runs that this master remembers of one");
  }
  if (!origin.founding.empty()) return End{origin.founding.begin()->second, kRoomNeeded};
  return std::nullopt;
}

std::optional<Registry::Decision> Registry::one_name(const std::string& origin) {
  if (!stateless_.empty()) {
    const std::string run = stateless_.begin()->second;
    return forgotten(run, "this master remembers the most runs that it can");
  }
  const auto of = origins_.find(origin);
  return of == origins_.end() ? std::nullopt : one_of_origin(of->second);
}

// Chooses the network with the most connected founding runs, and ends the oldest of these runs.
std::optional<Registry::Decision> Registry::one_connected() const {
  const Names* most = nullptr;
  for (const auto& [name, origin] : origins_) {
    if (most == nullptr || origin.founding.size() > most->size()) most = &origin.founding;
  }
  if (most == nullptr || most->empty()) return std::nullopt;
  return End{most->begin()->second, kRoomNeeded};
}

// Makes room for a run that is not known yet, from the network `origin`.
std::optional<Reject> Registry::make_room(const std::string& origin, Admission& admission) {
  const auto of = origins_.find(origin);
  if (of != origins_.end() && of->second.weight >= protocol::kRunsPerNetworkMax) {
    const auto victim = one_of_origin(of->second);
    if (!victim) {
      return full("this master remembers " + std::to_string(protocol::kRunsPerNetworkMax) +
                  " runs of your network (" + origin +
                  "), the most there can be of one, and each is under way or has agreed on a "
                  "shared state: ask its operator to forget some (pccl forget RUN)");
    }
    admission.decisions.push_back(*victim);
  }
  if (weight_ < protocol::kRunsKnownMax || !admission.decisions.empty()) return std::nullopt;
  const auto victim = one_name(origin);
  if (victim) admission.decisions.push_back(*victim);
  if (victim) return std::nullopt;
  return full("this master remembers " + std::to_string(protocol::kRunsKnownMax) +
              " runs, the most it can, and each is under way or has agreed on a shared state: ask "
              "its operator to forget some (pccl forget RUN), or start another master");
}

Registry::Admission Registry::admit(const std::string& run, const std::string& origin, Instant now,
                                    UnixSeconds clock) {
  Admission admission;
  const auto living = living_.find(run);
  if (living != living_.end() && living->second.connections > 0) return admission;
  if (connected_ >= protocol::kRunsMax) {
    const auto victim = one_connected();
    if (!victim) {
      admission.rejected = full("this master serves " + std::to_string(connected_) +
                                " runs, the most it can: join one of them or start another master");
      return admission;
    }
    admission.decisions.push_back(*victim);
  }
  if (living != living_.end()) return admission;
  Living opened{.origin = origin,
                .ends = now + protocol::kFoundersAwayMax,
                .waits_until = now + protocol::kFoundersAwayMax};
  if (lines_.contains(run)) {
    Line line = take_line(run);
    opened.origin = line.run.origin;
    admission.states = line.run.states;
    opened.line = std::move(line.run);
  } else {
    admission.rejected = make_room(origin, admission);
    if (admission.rejected) admission.decisions.clear();  // it is refused: no run has to end
    if (admission.rejected) return admission;
  }
  PCCL_ASSERT(!lines_.contains(run));
  opened.begun = {clock, ++order_};
  admission.opened = true;
  admission.origin = opened.origin;
  weigh(opened.origin, 1, true);
  enlist(run, living_[run] = std::move(opened), true);
  return admission;
}

// ---- The life of a run ----

void Registry::connected(const std::string& run) {
  change(run, [](Living& living) {
    ++living.connections;
    if (living.connections == 1) living.ends = living.waits_until + protocol::kFoundersLateMax;
  });
}

void Registry::disconnected(const std::string& run, Instant now) {
  change(run, [now](Living& living) {
    PCCL_ASSERT(living.connections > 0);
    --living.connections;
    if (living.connections == 0) living.ends = now + protocol::kFoundersAwayMax;
  });
}

void Registry::waits(const std::string& run, Instant until) {
  change(run, [until](Living& living) {
    living.waits_until = std::max(living.waits_until, until);
    if (living.connections > 0) living.ends = living.waits_until + protocol::kFoundersLateMax;
  });
}

void Registry::founded(const std::string& run) {
  const auto at = living_.find(run);
  PCCL_ASSERT(at != living_.end());
  if (at->second.founded) return;
  change(run, [](Living& living) {
    living.founded = true;
    living.line.reset();  // it gets a new line when it ends
  });
}

std::optional<FinishedRun> Registry::over(const std::string& run,
                                          std::vector<SharedStateRecord> states,
                                          UnixSeconds clock) {
  const auto at = living_.find(run);
  PCCL_ASSERT(at != living_.end());
  const Living living = std::move(at->second);
  enlist(run, living, false);
  living_.erase(at);
  weigh(living.origin, 1, false);
  if (!living.founded && !living.line && states.empty()) return std::nullopt;
  FinishedRun line{living.origin, living.line ? living.line->ended : clock, std::move(states)};
  add_line(run, line, {line.ended, ++order_});
  return line;
}

std::vector<Registry::End> Registry::expire(Instant now) {
  std::vector<End> all;
  for (const auto& [at, run] : ends_) {
    if (at > now) break;
    const bool waited = living_.at(run).connections > 0;
    all.push_back({run, waited ? "its founders have waited for as long as they wanted to"
                               : "it had not begun when its last peer was gone for " +
                                     text(protocol::kFoundersAwayMax)});
  }
  if (away_.size() <= protocol::kRunsAwayMax) return all;
  std::map<std::string, size_t> counts;
  for (const auto& [age, run] : away_) ++counts[living_.at(run).origin];
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const std::string most = std::max_element(counts.begin(), counts.end(), less)->first;
  for (const auto& [age, run] : away_) {
    if (living_.at(run).origin != most) continue;
    all.push_back({run, "its peers were all away, as those of too many runs are"});
    break;
  }
  return all;
}

std::optional<Instant> Registry::deadline() const {
  return ends_.empty() ? std::nullopt : std::optional(ends_.begin()->first);
}

// ---- From a journal ----

void Registry::restore(const std::string& run, FinishedRun line) {
  const Age age{line.ended, ++order_};
  add_line(run, std::move(line), age);
}

void Registry::restore(const std::string& run, const std::string& origin, bool founded,
                       Instant until, UnixSeconds clock) {
  PCCL_ASSERT(!living_.contains(run) && !lines_.contains(run));
  Living living{.origin = origin,
                .begun = {clock, ++order_},
                .founded = founded,
                .ends = until,
                .waits_until = until};
  weigh(origin, 1, true);
  enlist(run, living_[run] = std::move(living), true);
}

// ---- Lines ----

std::vector<Registry::Decision> Registry::forget_old(UnixSeconds clock) {
  std::vector<Decision> all;
  while (!by_age_.empty() && by_age_.begin()->first.when + kept_ <= clock) {
    const std::string run = by_age_.begin()->second;
    all.emplace_back(forgotten(run, "it has ended " + count_text(kept_ / kDay, "day") + " ago"));
  }
  return all;
}

std::variant<Registry::Forget, std::string> Registry::forget(const std::string& run) {
  if (lines_.contains(run)) return forgotten(run, "its operator wanted it");
  const std::string name = "run \"" + printable(run) + "\"";
  const auto at = living_.find(run);
  if (at == living_.end()) return "this master knows no " + name + ": pccl runs lists all";
  const Living& living = at->second;
  if (living.connections > 0) {
    return name + " has " + count_text(living.connections, "connected peer") +
           ": end them, then forget it";
  }
  return name +
         " waits for its peers to come back: it can be forgotten when they are given up, "
         "after PCCL_PEER_TIMEOUT";
}

std::optional<Registry::Listed> Registry::find(const std::string& run) const {
  const auto line = lines_.find(run);
  if (line != lines_.end()) {
    const FinishedRun& of = line->second.run;
    return Listed{Phase::kFinished, of.origin, 0, of.ended, of.states};
  }
  const auto at = living_.find(run);
  if (at == living_.end()) return std::nullopt;
  const Living& living = at->second;
  return Listed{phase(living), living.origin, living.connections, living.begun.when};
}

std::map<std::string, Registry::Listed> Registry::list() const {
  std::map<std::string, Listed> all;
  for (const auto& [run, line] : lines_) all[run] = *find(run);
  for (const auto& [run, living] : living_) all[run] = *find(run);
  PCCL_ASSERT(all.size() == lines_.size() + living_.size());
  return all;
}

// ---- Invariants ----

void Registry::check() const {
  size_t connected = 0, away = 0, ending = 0, weight = 0;
  for (const auto& [run, living] : living_) {
    check(run, living);
    connected += living.connections > 0 ? 1 : 0;
    away += phase(living) == Phase::kAway ? 1 : 0;
    ending += living.ends && !living.founded ? 1 : 0;
    ++weight;
  }
  for (const auto& [run, line] : lines_) {
    check(run, line);
    weight += Registry::weight(line.run);
  }
  PCCL_ASSERT(connected == connected_ && away == away_.size() && ending == ends_.size());
  PCCL_ASSERT(weight == weight_ && by_age_.size() == lines_.size());
  check_sizes();
}

void Registry::check(const std::string& run, const Living& living) const {
  PCCL_ASSERT(!lines_.contains(run) && living.begun.order <= order_);
  PCCL_ASSERT(!living.founded || !living.line);
  const auto listed = [&](const Names& names) {
    const auto at = names.find(living.begun);
    return at != names.end() && at->second == run;
  };
  const auto origin = origins_.find(living.origin);
  PCCL_ASSERT(origin != origins_.end());
  const bool alone = living.connections == 0;
  PCCL_ASSERT(listed(origin->second.founding) == (!living.founded && !alone));
  PCCL_ASSERT(listed(origin->second.founding_alone) == (!living.founded && alone));
  PCCL_ASSERT(listed(away_) == (living.founded && alone));
  if (living.founded) return;
  PCCL_ASSERT(living.ends && ends_.contains({*living.ends, run}));
}

void Registry::check(const std::string& run, const Line& line) const {
  PCCL_ASSERT(!living_.contains(run) && line.age.order <= order_);
  const auto listed = [&](const Names& names) {
    const auto at = names.find(line.age);
    return at != names.end() && at->second == run;
  };
  const auto origin = origins_.find(line.run.origin);
  PCCL_ASSERT(origin != origins_.end() && listed(by_age_));
  PCCL_ASSERT(listed(stateless_) == line.run.states.empty());
  PCCL_ASSERT(listed(origin->second.stateless) == line.run.states.empty());
}

// Together with check() of each run this shows that no index has an entry without a run.
void Registry::check_sizes() const {
  size_t weight = 0, stateless = 0, founding = 0;
  for (const auto& [name, origin] : origins_) {
    const size_t here = origin.founding.size() + origin.founding_alone.size();
    PCCL_ASSERT(origin.weight > 0 && origin.weight >= here + origin.stateless.size());
    weight += origin.weight;
    stateless += origin.stateless.size();
    founding += here;
  }
  PCCL_ASSERT(weight == weight_ && stateless == stateless_.size());
  const auto founds = [](const auto& at) { return !at.second.founded; };
  PCCL_ASSERT(founding ==
              static_cast<size_t>(std::count_if(living_.begin(), living_.end(), founds)));
}

}  // namespace pccl::master
