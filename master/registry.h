// Registry: which runs a master knows, how many it serves, and which one goes when room is needed.
// A run begins with the first Hello that names it, and is *founded* when its first group has
// members. It lives while peers of it are connected or expected back. Then it is a line: its name,
// when it ended, and the shared states it has agreed on. The next run of that name starts from
// these states.
//   founding   opened, and nothing founded: ends kFoundersAwayMax after its last connection, or
//              when its founders have waited for as long as they said
//   training   founded, peers are connected
//   away       founded, nobody is connected: its core waits for its members
//   finished   a line: forgotten after the time that is kept, or earlier if it has agreed on no
//              state and room is needed
// Pure: the shell carries out what it decides. Invariants: a run that has agreed on a shared state
// is forgotten only by age or by its operator; who takes much room loses its own runs first.
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
#include "master/records.h"

namespace pccl::master {

// Seconds of the system's clock since 1970. Unlike Instant, it means the same after a restart.
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
  enum class Place { kFounding, kTraining, kAway, kFinished };

  // ---- Decisions ----
  // A run that has not ended by itself: its peers are told why, then it is over().
  struct End {
    std::string run;
    std::string why;
  };
  // A line is gone.
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
    std::vector<Decision> decisions;             // to be carried out first
    bool opened = false;                         // it begins: a core is needed,
    std::vector<SharedStateRecord> states = {};  // which remembers these
    std::string origin = {};                     // the network of the peer that opened it first
  };
  // A Hello names this run.
  Admission admit(const std::string& run, const std::string& origin, Instant now,
                  UnixSeconds clock);
  // One of its connections has begun, or ended. REQUIRES: it lives, as for all that follow.
  void connected(const std::string& run);
  void disconnected(const std::string& run, Instant now);
  // A peer of it waits until then for its group to begin.
  void waits(const std::string& run, Instant until);
  void founded(const std::string& run);
  // Its core has nobody left to wait for. A line, unless there is nothing to say in it.
  std::optional<FinishedRun> over(const std::string& run, std::vector<SharedStateRecord> states,
                                  UnixSeconds clock);
  // Founding runs whose time is up, and those that are away beyond the limit.
  std::vector<End> expire(Instant now);
  std::optional<Instant> deadline() const;

  // ---- From a journal ----
  void restore(const std::string& run, FinishedRun line);
  // One that lived: its peers may be on their way back until then.
  void restore(const std::string& run, const std::string& origin, bool founded, Instant until,
               UnixSeconds clock);

  // ---- Lines ----
  // Those whose time is up.
  std::vector<Decision> forget_old(UnixSeconds clock);
  // By the word of the operator. A sentence if it cannot be.
  std::variant<Forget, std::string> forget(const std::string& run);

  struct Listed {
    Place place = Place::kFounding;
    std::string origin;
    size_t connections = 0;
    UnixSeconds since = 0;                       // of its end if it is finished, else its beginning
    std::vector<SharedStateRecord> states = {};  // of a finished one
  };
  std::optional<Listed> find(const std::string& run) const;
  std::map<std::string, Listed> list() const;

 private:
  // In which order runs go: lines by their end, living ones by their beginning.
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
    std::optional<Instant> ends;  // of one that is founding
    Instant waits_until{};
    std::optional<FinishedRun> line = {};  // which it had been
  };
  struct Line {
    FinishedRun run;
    Age age;
  };
  using Names = std::map<Age, std::string>;
  struct Origin {
    size_t weight = 0;     // of all runs: how many they count as
    Names stateless;       // lines that agreed on nothing
    Names founding_alone;  // nobody is connected
    Names founding;        // somebody is
  };

  static Place place(const Living& living);
  static size_t weight(const FinishedRun& line);
  // The one change of a living run: books are kept of what it is before and after.
  template <typename F>
  void change(const std::string& run, F&& how);
  void enlist(const std::string& run, const Living& living, bool in);
  void weigh(const std::string& origin, size_t weight, bool in);
  void add_line(const std::string& run, FinishedRun line, Age age);
  Line take_line(const std::string& run);
  Forget forgotten(const std::string& run, std::string why);
  // The run that makes room for one more; nothing if no run may go.
  std::optional<Decision> one_of_origin(const Origin& origin);
  std::optional<Decision> one_name(const std::string& origin);
  std::optional<Decision> one_connected() const;
  std::optional<protocol::Reject> make_room(const std::string& origin, Admission& admission);

  const UnixSeconds kept_;
  uint64_t order_ = 0;    // of what was opened or has ended last
  size_t weight_ = 0;     // of all
  size_t connected_ = 0;  // runs with a connection
  std::map<std::string, Living> living_;
  std::map<std::string, Line> lines_;
  std::map<std::string, Origin> origins_;  // only those that have a run here
  Names by_age_;                           // all lines
  Names stateless_;                        // those that agreed on nothing
  std::map<Age, std::string> away_;
  std::set<std::pair<Instant, std::string>> ends_;
};

const char* text(Registry::Place place);

}  // namespace pccl::master
