#include <set>
#include <sstream>

#include "tests/sim/scenario.h"

namespace pccl::sim {
namespace {

// Moments after the calls, in microseconds. The transfers are under way for about 5 ms of them.
constexpr uint32_t kFirst = 8'000, kLast = 36'000, kStep = 400;

// How the stale members take part. kMissing: they have no entry at all, and only receive.
enum class Way { kMaySend, kReceiveOnly, kMissing };

// One run: members 0 to `peers` - 1, of which those in `stale` are stale, and `dies` is killed
// `after` the calls (none: `peers`).
struct Case {
  uint32_t peers = 0, stale = 0, dies = 0, after = 0;
  Way way = Way::kMaySend;
  bool is_stale(uint32_t peer) const { return ((stale >> peer) & 1) != 0; }
};

std::string name(uint32_t peer) { return std::string(1, static_cast<char>('a' + peer)); }

std::string story(const Case& run) {
  std::string all, fresh, stale;
  for (uint32_t peer = 0; peer < run.peers; ++peer) {
    all += " " + name(peer);
    std::string& names = run.is_stale(peer) ? stale : fresh;
    names += (names.empty() ? "" : ",") + name(peer);
  }
  std::string text =
      "join" + all + " state=100000 min_peers=1 founders=" + std::to_string(run.peers) +
      "; settle; sync revision=8 fill=2 on=" + fresh + "; sync revision=7 fill=1 on=" + stale +
      (run.way == Way::kMaySend ? "" : " strategy=receive_only") +
      (run.way == Way::kMissing ? " missing=1" : "");
  if (run.dies < run.peers)
    text += "; run 0 us=" + std::to_string(run.after) + "; kill " + name(run.dies);
  return text + "; settle; state";
}

// Why the outcomes and states of the survivors are wrong; empty if they are right. `completed`: the
// receivers have done it without a source.
std::string judge(const Case& run, const std::string& transcript, bool& completed) {
  std::set<std::string> outcomes;
  std::set<std::string> states;
  std::istringstream lines(transcript);
  for (std::string line; std::getline(lines, line);) {
    for (uint32_t peer = 0; peer < run.peers; ++peer) {
      if (peer == run.dies) continue;
      const auto after = [&](const std::string& words) -> std::string {
        const std::string start = "] " + name(peer) + " > " + words;
        const size_t at = line.find(start);
        return at == std::string::npos ? "" : line.substr(at + start.size());
      };
      if (const std::string how = after("sync_shared_state"); !how.empty())
        outcomes.insert(how.substr(0, how.find(", fetched")));
      if (const std::string what = after("its state is "); !what.empty()) states.insert(what);
    }
  }
  if (transcript.find("calls still open") != std::string::npos) return "a call does not end";
  if (outcomes.size() != 1) return "the outcomes differ";
  const bool ok = *outcomes.begin() == ": revision 8";
  bool source_left = false;
  for (uint32_t peer = 0; peer < run.peers; ++peer)
    source_left |= !run.is_stale(peer) && peer != run.dies;
  completed = ok && !source_left;
  if (ok && states != std::set<std::string>{"2"}) return "the agreed state is not everywhere";
  if (ok) return "";
  if (source_left) return "it failed though a source was left:" + *outcomes.begin();
  states.erase("1");
  if (run.way == Way::kReceiveOnly) states.erase("mixed"), states.erase("2");
  return states.empty() ? "" : "a failed call has changed a state that may be sent";
}

}  // namespace

std::vector<std::string> sweep_states(uint32_t peers, uint64_t& runs, uint64_t& completed) {
  std::vector<std::string> wrong;
  const auto run = [&](const Case& one) {
    ++runs;
    bool alone = false;
    const std::string text = story(one);
    const std::string why = judge(one, run_scenario(text), alone);
    completed += alone ? 1 : 0;
    if (!why.empty()) wrong.push_back(why + "\n    " + text);
  };
  for (uint32_t size = 2; size <= peers; ++size) {
    for (uint32_t stale = 1; stale + 1 < (1u << size); ++stale) {
      for (const Way way : {Way::kMaySend, Way::kReceiveOnly, Way::kMissing}) {
        run({size, stale, size, 0, way});
        for (uint32_t dies = 0; dies < size; ++dies) {
          for (uint32_t after = kFirst; after < kLast; after += kStep)
            run({size, stale, dies, after, way});
        }
      }
    }
  }
  return wrong;
}

}  // namespace pccl::sim
