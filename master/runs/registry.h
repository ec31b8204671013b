// Registry: the runs that a master knows, the limits on their number, and which run ends or is
// forgotten when room is needed. It is pure: Runs owns it and carries out its decisions.
// A run begins with the first Hello that names it. It is *founded* when its first group has
// members. It lives while peers of it are connected or expected back. Then it becomes a line: its
// name, when it ended, and the agreed shared states. The next run of that name starts from these
// states.
//   founding   opened, and no group founded: ends kFoundersAwayMax after its last connection
//              closed, or when its founders have waited for their join_timeout
//   training   founded, peers are connected
//   away       founded, no peer is connected: its core waits for its members
//   finished   a line: forgotten when it is too old, or earlier if it has no agreed state and
//              room is needed
// Invariants:
// 1. A run with an agreed shared state is forgotten only because of its age or by its operator.
// 2. When room is needed, a network that uses too much of it loses its own runs first.
// 3. A run lives or is a line, never both.
// 4. Each run is in exactly those indexes that belong to its phase, under its age and its network.
// 5. The sums of the weights, and the number of connected runs, match the runs.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/protocol/messages.h"
#include "master/runs/records.h"

namespace pccl::master {

// Seconds of the system clock since 1970. Unlike Instant, it keeps its meaning after a restart.
using UnixSeconds = int64_t;
constexpr UnixSeconds kDay = UnixSeconds{24} * 60 * 60;

struct FinishedRun {
  std::string origin;  // the network of the peer that opened it
  UnixSeconds ended = 0;
  std::vector<SharedStateRecord> states;
  bool operator==(const FinishedRun&) const = default;
};

class Registry {
 public:
  enum class Phase { kFounding, kTraining, kAway, kFinished };

  // ---- Decisions ----
  // The decision to end a run: its peers get the reason, then over() is called for it.
  struct End {
    std::string run;
    std::string why;
  };
  // The decision to forget a line.
  struct Forget {
    std::string run;
    FinishedRun what;
    std::string why;
  };
  using Decision = std::variant<End, Forget>;

  explicit Registry(UnixSeconds kept) : kept_(kept) {}

  // ---- The life of a run ----
  struct Admission {
    std::optional<protocol::Reject> rejected;
    std::vector<Decision> decisions;             // carry these out first
    bool opened = false;                         // the run begins: it needs a core,
    std::vector<SharedStateRecord> states = {};  // which starts from these states
    std::string origin = {};                     // network of the peer that opened the run first
  };
  // A Hello names this run. Decides whether it is let in, and which runs have to go for it.
  Admission admit(const std::string& run, const std::string& origin, Instant now,
                  UnixSeconds clock);
  // A connection of the run was attached or detached. REQUIRES: the run lives. The same holds for
  // the methods that follow, up to over().
  void connected(const std::string& run);
  void disconnected(const std::string& run, Instant now);
  // A peer of the run waits until `until` for its group to begin.
  void waits(const std::string& run, Instant until);
  void founded(const std::string& run);
  // The core has no peer left to wait for. Returns the line, unless it would be empty.
  std::optional<FinishedRun> over(const std::string& run, std::vector<SharedStateRecord> states,
                                  UnixSeconds clock);
  // Returns the founding runs whose time is up, and one run in phase `away` if there are too many
  // of these.
  std::vector<End> expire(Instant now);
  std::optional<Instant> deadline() const;

  // ---- From a journal ----
  void restore(const std::string& run, FinishedRun line);
  // A run that lived when the journal was written: its peers may come back up to `until`.
  void restore(const std::string& run, const std::string& origin, bool founded, Instant until,
               UnixSeconds clock);

  // ---- Lines ----
  // Forgets the lines that are too old.
  std::vector<Decision> forget_old(UnixSeconds clock);
  // Forgets a run for the operator. If that is not possible, returns the reason as a sentence.
  std::variant<Forget, std::string> forget(const std::string& run);

  struct Listed {
    Phase phase = Phase::kFounding;
    std::string origin;
    size_t connections = 0;
    UnixSeconds since = 0;                       // end of a finished run, else its beginning
    std::vector<SharedStateRecord> states = {};  // of a finished run
  };
  std::optional<Listed> find(const std::string& run) const;
  std::map<std::string, Listed> list() const;

  // Asserts the invariants.
  void check() const;

 private:
  // The age of a run decides which run goes first when room is needed. For a line it is the end of
  // the run, for a living run its beginning.
  struct Age {
    UnixSeconds when = 0;
    uint64_t order = 0;
    auto operator<=>(const Age&) const = default;
  };
  struct Living {
    std::string origin;
    Age begun{};
    size_t connections = 0;
    bool founded = false;
    std::optional<Instant> ends;  // when it ends if it is still founding
    Instant waits_until{};
    std::optional<FinishedRun> line = {};  // the line that it was before
  };
  struct Line {
    FinishedRun run;
    Age age;
  };
  using Names = std::map<Age, std::string>;
  struct Origin {
    size_t weight = 0;     // of all its runs; see Registry::weight()
    Names stateless;       // lines without agreed states
    Names founding_alone;  // no connections
    Names founding;        // connected
  };

  static Phase phase(const Living& living);
  static size_t weight(const FinishedRun& line);
  // The only way to change a living run: updates the indexes from its state before and after.
  template <typename F>
  void change(const std::string& run, F&& how);
  void enlist(const std::string& run, const Living& living, bool in);
  void weigh(const std::string& origin, size_t weight, bool in);
  void add_line(const std::string& run, FinishedRun line, Age age);
  Line take_line(const std::string& run);
  Forget forgotten(const std::string& run, std::string why);
  // These choose the run that ends or is forgotten, so that there is room for another run. They
  // return nothing if no run may go.
  std::optional<Decision> one_of_origin(const Origin& origin);
  std::optional<Decision> one_name(const std::string& origin);
  std::optional<Decision> one_connected() const;
  std::optional<protocol::Reject> make_room(const std::string& origin, Admission& admission);
  void check(const std::string& run, const Living& living) const;
  void check(const std::string& run, const Line& line) const;
  void check_sizes() const;

  const UnixSeconds kept_;
  uint64_t order_ = 0;    // number of the last Age
  size_t weight_ = 0;     // of all runs
  size_t connected_ = 0;  // runs that have connections
  std::map<std::string, Living> living_;
  std::map<std::string, Line> lines_;
  std::map<std::string, Origin> origins_;  // only networks with a run here
  Names by_age_;                           // all lines
  Names stateless_;                        // lines without agreed states
  std::map<Age, std::string> away_;
  std::set<std::pair<Instant, std::string>> ends_;
};

const char* text(Registry::Phase phase);

}  // namespace pccl::master
