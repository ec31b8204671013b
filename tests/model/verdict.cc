// verdict: an exhaustive model of how one operation ends (docs/design.md, section 6; PROTOCOL.md,
// sections 3, 4 and 7). The members of an epoch agree among themselves by words (kDone). One of
// them may be a liar, which sends any word and any report at any time. One member may be suspected,
// rightly or not, and the master may crash once.
//   verdict_model             all sizes, which takes about a minute and 4 GiB
//   verdict_model --quick     up to 3 members
// It checks for each reachable state:
//   P1   Members that are not removed hold the same outcome.
//   law  Honest members lose at most the liar and one more. If an honest member is removed because
//        of what the liar has answered, the liar is removed, too. With two members, both are.
//   none gives up: no honest member gets a verdict that contradicts what it did.
// The chosen rules must hold. Each weaker rule must fail, and the shortest way there is printed.
#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr int kMembersMax = 5;

// The answer of a member to a freeze request or an abort proposal. kNothing: none yet.
enum class Answer : uint8_t { kNothing, kNotDone, kDone, kReturned };
enum class Outcome : uint8_t { kNone, kCommitted, kAborted };

// The rules under test. A rule that is off is as it was before.
struct Rules {
  const char* text;
  // A report has kReturned, and one return against one that is not done is a contradiction.
  bool contradictions = true;
  // An abort is settled after two members have answered that they are not done, or all have
  // answered; not at once.
  bool abort_asks_all = true;
  // An abort that does not await all answers needs two members that are not done.
  bool needs_two = true;
  // A verdict that a member brings back after a restart counts only with a MAC of the master.
  bool authentic_verdicts = true;
  // After its answer a member does not return by words any more.
  bool answers_bind = true;
};

struct Member {
  bool done = false, returned = false;
  bool gone = false;  // dead, or removed and aware of it
  uint8_t words = 0;  // members whose kDone has arrived
  Answer answer = Answer::kNothing;
  Outcome verdict = Outcome::kNone;
};

struct State {
  std::array<Member, kMembersMax> members{};
  // The master. `asks`: it waits for an answer of each member that is left.
  bool up = true, asks = false;
  uint8_t done = 0;     // members whose Done has arrived
  uint8_t removed = 0;  // durable before anybody hears of it
  uint8_t accused = 0;  // of `removed`: because of a contradiction
  std::array<Answer, kMembersMax> answers{};
  Outcome verdict = Outcome::kNone;
  uint8_t suspicions = 0, crashes = 0;
};

using Key = std::array<uint64_t, 2>;
struct KeyHash {
  size_t operator()(const Key& key) const {
    return (key[0] ^ (key[1] * 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu >> 7;
  }
};

class Model {
 public:
  Model(int size, bool liar, int suspicions, int crashes, const Rules& rules)
      : size_(size), liar_(liar), suspicions_(suspicions), crashes_(crashes), rules_(rules) {}

  // Visits all states. Returns false at the first one that breaks a promise.
  bool run() {
    add({}, SIZE_MAX, "");
    for (size_t at = 0; at < states_.size(); ++at) {
      if (const char* const broken = violation(states_[at].state)) {
        keep_story(at, broken);
        return false;
      }
      at_ = at;
      const State state = states_[at].state;
      step(state);
    }
    return true;
  }
  size_t states() const { return states_.size(); }
  const std::string& story() const { return story_; }

 private:
  struct Visited {
    State state;
    size_t from;
    std::string what;
  };

  bool lies(int i) const { return liar_ && i == 0; }
  uint8_t everyone() const { return static_cast<uint8_t>((1u << size_) - 1); }
  static bool has(uint8_t set, int i) { return (set >> i & 1) != 0; }
  static uint8_t with(uint8_t set, int i) { return static_cast<uint8_t>(set | 1u << i); }
  bool left(const State& state, int i) const { return !has(state.removed, i); }

  // Honest members are alike: a state is the same whatever their order. Words refer to members, so
  // they move along.
  Key key(const State& state) const;
  void add(const State& state, size_t from, std::string what);
  void next(const State& state, std::string what) { add(state, at_, std::move(what)); }
  void step(const State& state);
  void step_member(const State& state, int i);
  void step_liar(const State& state);
  void step_master(const State& state);
  void restart(const State& state);
  void decide(State state, const char* why);
  void abort_early(State state);
  const char* violation(const State& state) const;
  void keep_story(size_t at, const char* broken);

  const int size_;
  const bool liar_;
  const int suspicions_, crashes_;
  const Rules rules_;
  std::vector<Visited> states_;
  std::unordered_map<Key, size_t, KeyHash> seen_;
  size_t at_ = 0;
  std::string story_;
};

// ---- Members ------------------------------------------------------------------------------------

void Model::step_member(const State& state, int i) {
  const std::string name = std::to_string(i);
  const Member& member = state.members[i];
  if (member.gone) return;
  const auto changed = [&](const std::function<void(State&, Member&)>& change, const char* what) {
    State after = state;
    change(after, after.members[i]);
    next(after, name + " " + what);
  };
  if (has(state.removed, i) && state.up)
    changed([](State&, Member& m) { m.gone = true; }, "learns that it is removed");
  const bool open = member.verdict == Outcome::kNone;
  if (open && !member.done && member.answer == Answer::kNothing)
    changed([](State&, Member& m) { m.done = true; }, "is done");
  for (int j = 0; j < size_; ++j) {
    const bool sent = j != i && (state.members[j].done || lies(j));
    if (!sent || has(member.words, j) || !open) continue;
    changed([&](State&, Member& m) { m.words = with(m.words, j); },
            ("gets the word of " + std::to_string(j)).c_str());
  }
  const bool bound = rules_.answers_bind && member.answer != Answer::kNothing;
  const bool all_words = with(member.words, i) == everyone();
  if (open && member.done && !member.returned && !bound && all_words)
    changed([](State&, Member& m) { m.returned = true; }, "returns");
  if (!state.up || !left(state, i)) return;
  if (member.done && open && !has(state.done, i))
    changed([&](State& s, Member&) { s.done = with(s.done, i); }, "reports Done");
  // It gives up, for example after a timeout.
  if (open && !member.done && !state.asks && state.verdict == Outcome::kNone) {
    changed(
        [&](State& s, Member& m) {
          m.answer = Answer::kNotDone;
          if (rules_.abort_asks_all) {
            s.asks = true;
            s.answers[i] = Answer::kNotDone;
          } else {
            s.verdict = Outcome::kAborted;
          }
        },
        "asks to abort");
  }
  if (state.asks && open && state.answers[i] == Answer::kNothing) {
    changed(
        [&](State& s, Member& m) {
          const Answer now = m.returned ? Answer::kReturned
                             : m.done   ? Answer::kDone
                                        : Answer::kNotDone;
          m.answer = now;
          s.answers[i] = now;
        },
        "answers");
  }
  if (state.verdict != Outcome::kNone && open)
    changed([&](State& s, Member& m) { m.verdict = s.verdict; }, "learns the verdict");
}

// It sends its words with the events of the others.
void Model::step_liar(const State& state) {
  if (state.members[0].gone || !state.up || !left(state, 0)) return;
  if (!has(state.done, 0)) {
    State after = state;
    after.done = with(after.done, 0);
    next(after, "the liar reports Done");
  }
  if (!state.asks && state.verdict == Outcome::kNone) {
    State after = state;
    if (rules_.abort_asks_all) {
      after.asks = true;
      after.answers[0] = Answer::kNotDone;
    } else {
      after.verdict = Outcome::kAborted;
    }
    next(after, "the liar asks to abort");
  }
  if (!state.asks || state.answers[0] != Answer::kNothing) return;
  for (const Answer answer : {Answer::kNotDone, Answer::kDone, Answer::kReturned}) {
    State after = state;
    after.answers[0] = answer;
    next(after, "the liar answers " + std::to_string(static_cast<int>(answer)));
  }
}

// ---- The master ---------------------------------------------------------------------------------

void Model::step_master(const State& state) {
  const uint8_t members = static_cast<uint8_t>(everyone() & ~state.removed);
  if (state.suspicions < suspicions_) {
    for (int i = 0; i < size_; ++i) {
      if (!left(state, i) || (members & (members - 1)) == 0) continue;
      State after = state;
      ++after.suspicions;
      after.removed = with(after.removed, i);
      after.answers[i] = Answer::kNothing;
      after.asks = after.verdict == Outcome::kNone;
      next(after, "the master suspects " + std::to_string(i));
    }
  }
  if (state.verdict == Outcome::kNone && !state.asks && (state.done & members) == members) {
    State after = state;
    after.verdict = Outcome::kCommitted;
    next(after, "the master commits: all are done");
  }
  if (state.asks && state.verdict == Outcome::kNone) {
    bool all = true;
    for (int i = 0; i < size_; ++i)
      all = all && (!left(state, i) || state.answers[i] != Answer::kNothing);
    if (all) decide(state, "the master decides: all have answered");
    abort_early(state);
  }
  if (state.crashes < crashes_) {
    State after = state;
    ++after.crashes;
    after.up = false;
    next(after, "the master crashes");
  }
}

// One of two members that are not done is honest, so no honest member has returned the operation.
void Model::abort_early(State state) {
  int not_done = 0;
  for (int i = 0; i < size_; ++i)
    not_done += left(state, i) && state.answers[i] == Answer::kNotDone ? 1 : 0;
  if (not_done < (rules_.needs_two ? 2 : 1)) return;
  state.verdict = Outcome::kAborted;
  next(state, "the master aborts without the other answers");
}

void Model::decide(State state, const char* why) {
  uint8_t returned = 0, not_done = 0;
  for (int i = 0; i < size_; ++i) {
    if (!left(state, i)) continue;
    if (state.answers[i] == Answer::kReturned) returned = with(returned, i);
    if (state.answers[i] == Answer::kNotDone) not_done = with(not_done, i);
  }
  if (!rules_.contradictions) {  // "a verdict that anybody knows wins"
    state.verdict = returned != 0 || not_done == 0 ? Outcome::kCommitted : Outcome::kAborted;
    return next(state, why);
  }
  uint8_t liars = 0;
  if (returned != 0 && not_done != 0) {
    const bool some_returned = (returned & (returned - 1)) != 0;
    const bool some_not_done = (not_done & (not_done - 1)) != 0;
    liars = some_returned   ? not_done
            : some_not_done ? returned
                            : static_cast<uint8_t>(returned | not_done);
  }
  state.removed |= liars;
  state.accused |= liars;
  not_done = static_cast<uint8_t>(not_done & ~liars);
  state.verdict = not_done == 0 ? Outcome::kCommitted : Outcome::kAborted;
  next(state, why);
}

// All members that are left come back, each with its verdict or its state. They send Done and their
// answers again, and stay bound by the answers. Verdicts are not durable, removals are.
void Model::restart(const State& state) {
  State after = state;
  after.up = true;
  after.asks = false;
  after.done = 0;
  after.answers = {};
  after.verdict = Outcome::kNone;
  for (int i = 0; i < size_; ++i) {
    if (!left(state, i) || lies(i) || state.members[i].gone) continue;
    if (state.members[i].verdict != Outcome::kNone) after.verdict = state.members[i].verdict;
    if (state.members[i].answer != Answer::kNothing || state.removed != 0) after.asks = true;
  }
  if (after.verdict != Outcome::kNone) after.asks = false;
  next(after, "the master restarts");
  if (!liar_ || has(state.removed, 0)) return;
  if (state.verdict != Outcome::kNone) {  // the liar may have received it
    State shown = after;
    shown.verdict = state.verdict;
    shown.asks = false;
    next(shown, "the master restarts, and the liar shows the verdict");
  }
  if (rules_.authentic_verdicts) return;
  for (const Outcome invented : {Outcome::kCommitted, Outcome::kAborted}) {
    State shown = after;
    shown.verdict = invented;
    shown.asks = false;
    next(shown, "the master restarts, and the liar shows an invented verdict");
  }
}

void Model::step(const State& state) {
  for (int i = liar_ ? 1 : 0; i < size_; ++i) step_member(state, i);
  if (liar_) step_liar(state);
  if (state.up) {
    step_master(state);
  } else {
    restart(state);
  }
}

const char* Model::violation(const State& state) const {
  bool committed = false, aborted = false;
  int honest_accused = 0;
  for (int i = 0; i < size_; ++i) {
    if (lies(i)) continue;
    const Member& member = state.members[i];
    honest_accused += has(state.accused, i) ? 1 : 0;
    if (member.verdict == Outcome::kCommitted && !member.done) return "gives up: commit, not done";
    if (member.verdict == Outcome::kAborted && member.returned) return "gives up: abort, returned";
    if (member.gone || has(state.removed, i)) continue;
    committed |= member.returned || member.verdict == Outcome::kCommitted;
    aborted |= member.verdict == Outcome::kAborted;
  }
  if (committed && aborted) return "P1: two outcomes";
  if (honest_accused > 1) return "law: two honest members are removed";
  if (honest_accused == 1 && !has(state.accused, 0)) return "law: the liar stays";
  if (!liar_ && honest_accused > 0) return "law: nobody lies, and somebody is removed";
  return nullptr;
}

// ---- The search ---------------------------------------------------------------------------------

Key Model::key(const State& state) const {
  // A number for each member but its words; then the honest ones are sorted by it.
  std::array<uint32_t, kMembersMax> own{};
  std::array<int, kMembersMax> order{};
  for (int i = 0; i < size_; ++i) {
    const Member& m = state.members[i];
    own[i] = static_cast<uint32_t>(m.done) | static_cast<uint32_t>(m.returned) << 1 |
             static_cast<uint32_t>(m.gone) << 2 | static_cast<uint32_t>(m.answer) << 3 |
             static_cast<uint32_t>(m.verdict) << 5 |
             static_cast<uint32_t>(has(state.done, i)) << 7 |
             static_cast<uint32_t>(has(state.removed, i)) << 8 |
             static_cast<uint32_t>(has(state.accused, i)) << 9 |
             static_cast<uint32_t>(state.answers[i]) << 10;
    order[i] = i;
  }
  const int first = liar_ ? 1 : 0;
  const auto words = [&](int i) { return __builtin_popcount(state.members[i].words); };
  for (int i = first + 1; i < size_; ++i) {  // few: insertion
    for (int j = i; j > first; --j) {
      const int a = order[j - 1], b = order[j];
      if (own[a] < own[b] || (own[a] == own[b] && words(a) <= words(b))) break;
      std::swap(order[j - 1], order[j]);
    }
  }
  Key key{};
  int bits = 0;
  const auto put = [&](uint64_t value, int width) {
    for (int bit = 0; bit < width; ++bit, ++bits)
      key[static_cast<size_t>(bits / 64)] |= (value >> bit & 1) << (bits % 64);
  };
  for (int i = 0; i < size_; ++i) {
    put(own[order[i]], 12);
    for (int j = 0; j < size_; ++j) put(has(state.members[order[i]].words, order[j]), 1);
  }
  put(static_cast<uint64_t>(state.up) | static_cast<uint64_t>(state.asks) << 1 |
          static_cast<uint64_t>(state.verdict) << 2 | static_cast<uint64_t>(state.suspicions) << 4 |
          static_cast<uint64_t>(state.crashes) << 5,
      6);
  return key;
}

void Model::add(const State& state, size_t from, std::string what) {
  if (!seen_.emplace(key(state), states_.size()).second) return;
  states_.push_back({state, from, std::move(what)});
}

void Model::keep_story(size_t at, const char* broken) {
  std::vector<const std::string*> steps;
  for (; states_[at].from != SIZE_MAX; at = states_[at].from) steps.push_back(&states_[at].what);
  story_ = broken;
  for (size_t i = steps.size(); i-- > 0;)
    story_ += (i + 1 == steps.size() ? ": " : "; ") + *steps[i];
}

// ---- All runs -----------------------------------------------------------------------------------

struct Run {
  int members;
  bool liar;
  int suspicions, crashes;
};

constexpr Rules kChosen{"the rules"};
constexpr Rules kWeaker[] = {
    {.text = "without contradictions (F2)", .contradictions = false},
    {.text = "an abort is settled at once (the lie by words)", .abort_asks_all = false},
    {.text = "one member that is not done suffices", .needs_two = false},
    {.text = "verdicts without a MAC (F2 after a restart)", .authentic_verdicts = false},
    {.text = "an answer binds nobody", .answers_bind = false},
};

bool check(const Run& run, const Rules& rules, bool must_hold) {
  Model model(run.members, run.liar, run.suspicions, run.crashes, rules);
  const bool holds = model.run();
  printf("%d members%s, %d suspicions, %d crashes, %s: %zu states, %s\n", run.members,
         run.liar ? " with a liar" : "", run.suspicions, run.crashes, rules.text, model.states(),
         holds ? "holds" : model.story().c_str());
  fflush(stdout);
  return holds == must_hold;
}

}  // namespace

int main(int count, char** words) {
  const bool quick = count == 2 && std::string(words[1]) == "--quick";
  if (count > 1 && !quick) {
    fprintf(stderr, "usage: verdict_model [--quick]\n");
    return 2;
  }
  bool good = true;
  for (const Run& run :
       {Run{2, false, 1, 1}, Run{3, false, 1, 1}, Run{2, true, 1, 1}, Run{3, true, 1, 1},
        Run{4, true, 0, 1}, Run{4, true, 1, 0}, Run{5, true, 0, 0}}) {
    if (quick && run.members > 3) continue;
    good = check(run, kChosen, true) && good;
  }
  for (const Rules& rules : kWeaker) good = check({3, true, 1, 1}, rules, false) && good;
  return good ? 0 : 1;
}
