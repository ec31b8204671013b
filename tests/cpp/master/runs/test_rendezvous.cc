#include "master/runs/rendezvous.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/cpp/master/runs/rendezvous_test.h"
#include "tests/sim/random.h"

namespace pccl::master {
namespace {

using sim::Random;

TEST_F(RendezvousTest, APeerThatComesFirstWaitsForTheCallOfTheHost) {
  arrive(12, 7, handles({1, 2}), 1);
  EXPECT_EQ(take(), Lines{});
  call(7, handles({1, 2}));
  EXPECT_EQ(take(), (Lines{"admit 12"}));
  arrive(11, 7, handles({1, 2}), 0);
  EXPECT_EQ(take(), (Lines{"admit 11"}));
  note(meets.begun(Rendezvous::run_name(group_of(1), 7)));
  note(meets.closed({12}));
  over();
  EXPECT_EQ(take(), Lines{}) << "a loss after the beginning is one of the run";
  arrive(13, 8, {handle(1, 2), handle(2)}, 1);
  EXPECT_EQ(take(), Lines{}) << "it waits: the handle of the host is one of its next generation";
}

TEST_F(RendezvousTest, TheLossOfOneEndsTheCallForAll) {
  call(7, handles({1, 2, 3}));
  arrive(12, 7, handles({1, 2, 3}), 1);
  note(meets.closed({12}));
  EXPECT_EQ(take(), (Lines{"admit 12"})) << "its master may know the reason";
  unreachable(1, "connection reset");
  const std::string why =
      "reconfigure (uuid 7): rank 1, 10.0.0.2:4000 (group 000000), was lost meanwhile";
  EXPECT_EQ(take(), (Lines{"end: " + why}));
  EXPECT_EQ(invited, std::set<uint32_t>());
  arrive(13, 7, handles({1, 2, 3}), 2);
  EXPECT_EQ(take(), (Lines{"refuse 13: " + why})) << "who comes late gets the same reason";
}

TEST_F(RendezvousTest, DifferentListsEndTheCallAndTheReasonNamesTheDifference) {
  call(7, handles({1, 2, 3}));
  arrive(12, 7, handles({1, 2, 4}), 1);
  const std::string begin =
      "reconfigure (uuid 7): the lists of the handles differ: rank 1, 10.0.0.2:4000 (group "
      "000000): ";
  const std::string why = begin +
                          "its list has also 10.0.0.4:4000 (group 000000), and lacks "
                          "10.0.0.3:4000 (group 000000)";
  EXPECT_EQ(take(), (Lines{"end: " + why, "refuse 12: " + why}));
  over();
  call(8, {handle(1), handle(2), handle(3)});
  arrive(14, 8, {handle(1, 2), handle(3), handle(2)}, 1);
  EXPECT_EQ(take().size(), 2);
}

TEST_F(RendezvousTest, AnotherOrderIsADifferenceThatAlsoEndsACallThatGoesElsewhere) {
  call(7, handles({2, 1}));
  arrive(12, 7, handles({1, 2}), 1);
  const std::string why =
      "reconfigure (uuid 7): the lists of the handles differ: rank 1, 10.0.0.2:4000 (group "
      "000000): its list has another order";
  EXPECT_EQ(take(), (Lines{"fail: " + why, "refuse 12: " + why}));
}

TEST_F(RendezvousTest, AUuidServesOnceAndAHandleUntilItsCallIsOver) {
  call(7, handles({1, 2}));
  arrive(12, 7, handles({1, 2}), 1);
  note(meets.begun(Rendezvous::run_name(group_of(1), 7)));
  over();
  take();
  arrive(13, 7, handles({1, 2}), 1);
  arrive(14, 8, handles({1, 2}), 1);
  EXPECT_EQ(take(),
            (Lines{"refuse 13: reconfigure (uuid 7): the uuid was already used: each call needs a "
                   "fresh one",
                   "refuse 14: reconfigure (uuid 8): the handle of rank 0, 10.0.0.1:4000 (group "
                   "000000), was used before: each reconfigure needs the present handles"}));
}

TEST_F(RendezvousTest, ARefusalEndsTheCallAlsoIfItComesFirst) {
  const std::string why =
      "reconfigure (uuid 7): rank 1, 10.0.0.2:4000 (group 000000), refuses it: the uuid was "
      "already used";
  arrive(12, 7, handles({1, 2}), 1, "the uuid was already used");
  EXPECT_EQ(take(), (Lines{"refuse 12: " + why}));
  call(7, handles({1, 2}));
  EXPECT_EQ(take(), (Lines{"end: " + why}));
  over();
  call(8, {handle(1), handle(3)});
  arrive(13, 8, {handle(1), handle(3)}, 1, "too many open files");
  EXPECT_EQ(take().front(),
            "end: reconfigure (uuid 8): rank 1, 10.0.0.3:4000 (group 000000), refuses it: too "
            "many open files");
}

TEST_F(RendezvousTest, ManyRefusalsOfOtherCallsLeaveThePresentOneItsReason) {
  for (int64_t uuid = 100; uuid < 140; ++uuid) arrive(12, uuid, handles({1, 2}), 1, "no");
  take();
  call(7, handles({1, 2}));
  arrive(13, 7, handles({1, 2}), 1);
  arrive(14, 7, handles({1, 2}), 1);
  const std::string why =
      "reconfigure (uuid 7): rank 1, 10.0.0.2:4000 (group 000000), has lost its connection and "
      "come again";
  EXPECT_EQ(take(), (Lines{"admit 13", "end: " + why, "refuse 14: " + why}));
  for (int64_t uuid = 200; uuid < 240; ++uuid) arrive(12, uuid, handles({1, 2}), 1, "no");
  take();
  arrive(11, 7, handles({1, 2}), 0);
  EXPECT_EQ(take(), (Lines{"refuse 11: " + why})) << "also for the own peer of the host";
}

TEST_F(RendezvousTest, APeerThatComesAgainTakesItsOwnPlace) {
  arrive(12, 7, handles({1, 2}), 1);
  arrive(13, 7, handles({1, 2}), 1);
  EXPECT_EQ(take(), (Lines{"refuse 12: reconfigure (uuid 7): this peer has come again"}));
  call(7, handles({1, 2}));
  EXPECT_EQ(take(), (Lines{"admit 13"}));
}

TEST_F(RendezvousTest, AListedPeerThatGoesOnToAnotherCallEndsThisOne) {
  call(7, handles({1, 2}));
  arrive(12, 8, handles({1, 2}), 1);
  EXPECT_EQ(take(), (Lines{"end: reconfigure (uuid 7): rank 1, 10.0.0.2:4000 (group 000000), has "
                           "called reconfigure with uuid 8 meanwhile"}));
}

TEST_F(RendezvousTest, TheEndOfTheTimeNamesWhoIsMissing) {
  call(7, handles({1, 2, 3}), clock_at(9));
  arrive(12, 7, handles({1, 2, 3}), 1, "", clock_at(5));
  EXPECT_EQ(meets.deadline(), clock_at(5)) << "the first caller that gives up";
  note(meets.expire(clock_at(4)));
  EXPECT_EQ(take(), (Lines{"admit 12"}));
  note(meets.expire(clock_at(5)));
  EXPECT_EQ(take(), (Lines{"end: reconfigure (uuid 7): timed out: it waited for ranks 0 "
                           "(10.0.0.1:4000 (group 000000)) and 2 (10.0.0.3:4000 (group 000000))"}));
  EXPECT_EQ(meets.deadline(), std::nullopt);
  arrive(13, 8, handles({1, 3}), 1, "", clock_at(6));
  note(meets.expire(clock_at(6)));
  EXPECT_EQ(take(), (Lines{"refuse 13: reconfigure (uuid 8): timed out: it waited for rank 0, "
                           "10.0.0.1:4000 (group 000000), which has not called it"}));
}

TEST_F(RendezvousTest, AHandleOfAProcessThatWasRestartedIsStale) {
  arrive(12, 7, handles({5, 2}), 1);
  EXPECT_EQ(take(), (Lines{"refuse 12: reconfigure (uuid 7): the handle of rank 0, 10.0.0.5:4000 "
                           "(group 000000), is stale: its process was restarted, or has left the "
                           "group"}));
}

TEST_F(RendezvousTest, AListThatMakesNoSenseIsRefused) {
  arrive(12, 7, {}, 0);
  arrive(13, 7, handles({1, 2}), 2);
  arrive(14, 7, handles({1, 2, 2}), 1);
  EXPECT_EQ(take(), (Lines{"refuse 12: reconfigure (uuid 7): it is not in its own list",
                           "refuse 13: reconfigure (uuid 7): it is not in its own list",
                           "refuse 14: reconfigure (uuid 7): a group is twice in its list"}));
}

TEST_F(RendezvousTest, AClosedGroupLetsNobodyWait) {
  arrive(12, 7, handles({1, 2}), 1);
  invite(13, 8, handles({2, 1}));
  note(meets.close(group_of(1)));
  EXPECT_EQ(take().size(), 2);
  meets.open(group_of(1));
}

// ---- Invitations ----

TEST_F(RendezvousTest, TheHostInvitesAllOthersUntilItsRunHasBegun) {
  call(7, handles({1, 2, 3}));
  EXPECT_EQ(invited, (std::set<uint32_t>{1, 2}));
  note(meets.begun(Rendezvous::run_name(group_of(1), 7)));
  EXPECT_EQ(invited, std::set<uint32_t>());
  over();
  call(8, {handle(2), handle(1, 2)});
  EXPECT_EQ(invited, std::set<uint32_t>()) << "it is not the host";
  EXPECT_EQ(take(), Lines{});
}

TEST_F(RendezvousTest, AProcessThatIsGoneEndsTheCallBeforeItComes) {
  call(7, handles({1, 2, 3}));
  arrive(12, 7, handles({1, 2, 3}), 1);
  unreachable(1, "connection reset");
  EXPECT_EQ(take(), (Lines{"admit 12"})) << "the connection of its peer is there";
  unreachable(2, "connection refused");
  EXPECT_EQ(take(), (Lines{"end: reconfigure (uuid 7): rank 2, 10.0.0.3:4000 (group 000000), is "
                           "not there (connection refused): its process has ended, or its port "
                           "cannot be reached from rank 0"}));
}

TEST_F(RendezvousTest, TheReasonOfALossComesFromItsMaster) {
  const std::string why =
      "reconfigure (uuid 7): rank 1, 10.0.0.2:4000 (group 000000), has ended its call: no memory";
  call(7, handles({1, 2}));
  arrive(12, 7, handles({1, 2}), 1);
  note(meets.closed({12}));
  note(meets.declined(group_of(1), 1, {Code::kPeerLost, why}));
  EXPECT_EQ(take(), (Lines{"admit 12", "end: " + why}));
  over();
  call(8, {handle(1, 2), handle(2)});
  note(meets.declined(group_of(1), 1, {Code::kProtocol, "another version"}));
  EXPECT_EQ(take(), (Lines{"end: reconfigure (uuid 8): rank 1, 10.0.0.2:4000 (group 000000), "
                           "refuses it: another version"}));
}

TEST_F(RendezvousTest, ALossWithoutAReasonEndsTheCallWithItsTime) {
  call(7, handles({1, 2}), clock_at(9));
  arrive(12, 7, handles({1, 2}), 1);
  note(meets.closed({12}));
  arrive(13, 7, handles({1, 2}), 1);
  EXPECT_EQ(take().size(), 3) << "it has come again";
  over();
  call(8, {handle(1, 2), handle(2)}, clock_at(9));
  arrive(14, 8, {handle(1, 2), handle(2)}, 1);
  note(meets.closed({14}));
  note(meets.expire(clock_at(9)));
  EXPECT_EQ(take(), (Lines{"admit 14",
                           "end: reconfigure (uuid 8): rank 1, 10.0.0.2:4000 (group "
                           "000000), was lost meanwhile"}));
}

TEST_F(RendezvousTest, AnInvitationToAnotherListOrAnotherUuidIsRefused) {
  const std::string who = "rank 1, 10.0.0.1:4000 (group 000000)";
  invite(21, 8, handles({2, 1}));
  EXPECT_EQ(take(), Lines{}) << "its process may still call it";
  call(7, handles({2, 1}));
  EXPECT_EQ(take(), (Lines{"refuse 21: reconfigure (uuid 8): " + who +
                           ", has called reconfigure with uuid 7 meanwhile"}));
  invite(22, 7, handles({2, 1}));
  EXPECT_EQ(take(), Lines{});
  invite(23, 7, handles({2, 1, 3}));
  const std::string why = "reconfigure (uuid 7): the lists of the handles differ: " + who +
                          ": its list lacks 10.0.0.3:4000 (group 000000)";
  EXPECT_EQ(take(), (Lines{"fail: " + why, "refuse 23: " + why}));
  invite(24, 7, handles({2, 1}));
  EXPECT_EQ(take(), (Lines{"refuse 24: " + why})) << "the call has ended already";
}

TEST_F(RendezvousTest, AProcessThatIsNotListedEndsNothingAndLearnsNothing) {
  arrive(12, 7, handles({1, 3}), 1, "no");
  EXPECT_EQ(take().size(), 1);
  call(7, handles({1, 2}));
  EXPECT_EQ(take(), Lines{}) << "the refusal of a process that is not listed";
  const std::string busy = "(group 000000), has called another reconfigure";
  arrive(13, 7, handles({1, 3}), 1);
  EXPECT_EQ(take().size(), 1) << "its refusal";
  arrive(14, 7, handles({1, 4}), 1);
  EXPECT_EQ(take(), (Lines{"refuse 14: reconfigure (uuid 7): rank 0, 10.0.0.1:4000 " + busy}));
  arrive(15, 7, handles({1, 4}), 1, "no");
  EXPECT_EQ(take().size(), 1);
  for (const int64_t uuid : {7, 8}) {
    invite(16, uuid, handles({4, 1}));
    EXPECT_EQ(take(), (Lines{"refuse 16: reconfigure (uuid " + std::to_string(uuid) +
                             "): rank 1, 10.0.0.1:4000 " + busy}));
  }
  arrive(12, 7, handles({1, 2}), 1);
  EXPECT_EQ(take(), (Lines{"admit 12"}));
}

TEST_F(RendezvousTest, TheOthersGetTheReasonWhyTheCallOfTheHostHasFailed) {
  call(7, handles({1, 2}));
  arrive(11, 7, handles({1, 2}), 0);
  arrive(12, 7, handles({1, 2}), 1);
  note(meets.closed({11}));
  EXPECT_EQ(take(), (Lines{"admit 11", "admit 12"})) << "its own process has the reason";
  over(protocol::Reject{Code::kInvalidState, "reconfigure (uuid 7): abort() has ended it"});
  EXPECT_EQ(take(), (Lines{"end: reconfigure (uuid 7): rank 0, 10.0.0.1:4000 (group 000000), has "
                           "ended its call: abort() has ended it"}));
}

TEST_F(RendezvousTest, AnInvitationGetsTheReasonWhyTheCallHasFailed) {
  call(7, handles({2, 1}));
  invite(21, 7, handles({2, 1}));
  over(protocol::Reject{Code::kSystem, "reconfigure (uuid 7): no memory left"});
  EXPECT_EQ(take(), (Lines{"refuse 21: reconfigure (uuid 7): rank 1, 10.0.0.1:4000 (group 000000), "
                           "has ended its call: no memory left"}));
  invite(22, 7, handles({2, 1}));
  EXPECT_EQ(take(), (Lines{"refuse 22: reconfigure (uuid 7): rank 1, 10.0.0.1:4000 (group 000000), "
                           "has ended its call: no memory left"}));
  invite(23, 8, handles({2, 1}));
  EXPECT_EQ(take(), (Lines{"refuse 23: reconfigure (uuid 8): the handle of rank 1, 10.0.0.1:4000 "
                           "(group 000000), was used before: each reconfigure needs the present "
                           "handles"}));
}

TEST_F(RendezvousTest, AnInvitationIsKeptForItsTimeAtMost) {
  invite(21, 7, handles({2, 1}), clock_at(5));
  invite(22, 7, handles({3, 1}), clock_at(6));
  note(meets.closed({22}));
  EXPECT_EQ(meets.deadline(), clock_at(5));
  note(meets.expire(clock_at(5)));
  EXPECT_EQ(take(), (Lines{"refuse 21: reconfigure (uuid 7): timed out: it waited for rank 1, "
                           "10.0.0.1:4000 (group 000000), which has not called it"}));
  EXPECT_EQ(meets.deadline(), std::nullopt);
}

// ---- Many processes, in any order ----

// Some processes call reconfigure, and come to the master of the first one, which invites them.
// Messages take any time, and one thing at most goes wrong: a process is killed, calls late or
// never, has another list or another uuid, refuses, or ends its call.
class World {
 public:
  World(uint64_t seed, int processes) : random_(seed) {
    for (int i = 0; i < processes; ++i) {
      list_.push_back(i);
      processes_.push_back(std::make_unique<Process>());
      processes_.back()->meets.open(group_of(i));
    }
    for (size_t i = list_.size(); i > 1; --i) std::swap(list_[i - 1], list_[random_.below(i)]);
    odd_ = static_cast<int>(random_.below(list_.size()));
    fault_ = static_cast<Fault>(random_.below(7));
  }

  // Returns what is wrong; empty: nothing.
  std::string run() {
    for (int i = 0; i < static_cast<int>(processes_.size()); ++i) later([this, i] { call(i); });
    while (!events_.empty()) {
      const size_t which = random_.below(events_.size());
      const auto event = events_[which];
      events_.erase(events_.begin() + static_cast<ptrdiff_t>(which));
      event();
      for (const auto& process : processes_) process->meets.check();
      // Time passes only when nothing else can happen, so a timeout is the last resort.
      if (events_.empty() && !expired_) expire();
    }
    return verdict();
  }

 private:
  enum class Fault : uint8_t {
    kNone,
    kKilled,
    kNeverCalls,
    kOtherList,
    kOtherUuid,
    kRefuses,
    kGivesUp
  };
  static constexpr const char* kGaveUp = "no memory left";
  enum class State : uint8_t { kIdle, kCalls, kSucceeded, kFailed, kDead };
  struct Process {
    Rendezvous meets;
    State state = State::kIdle;
    std::string why;
    std::optional<ConnectionId> connection;  // at the master of `host`
    int host = -1;
    std::set<uint64_t> in_run;  // connections that its master has let in
  };
  struct Invitation {
    int host = -1, to = -1;
    uint32_t rank = 0;
  };

  void later(std::function<void()> event) { events_.push_back(std::move(event)); }

  Handles list_of(int process) const {
    std::vector<int> list = list_;
    if (fault_ == Fault::kOtherList && process == odd_) {
      const auto other = random_other(process);
      if (list.size() > 2)
        std::erase(list, other);
      else
        std::swap(list[0], list[1]);
    }
    return handles(list);
  }
  int random_other(int process) const { return list_[0] == process ? list_[1] : list_[0]; }

  void call(int i) {
    Process& self = *processes_[static_cast<size_t>(i)];
    const bool odd = i == odd_;
    if (self.state == State::kDead || (odd && fault_ == Fault::kNeverCalls)) return;
    const Handles list = list_of(i);
    const int64_t uuid = odd && fault_ == Fault::kOtherUuid ? 8 : 7;
    const uint32_t rank = rank_of(i, list);
    const bool refuses = odd && fault_ == Fault::kRefuses && rank > 0;
    if (refuses) self.state = State::kFailed;
    if (!refuses) {
      self.state = State::kCalls;
      carry_out(i, self.meets.call(group_of(i), {uuid, list, rank, clock_at(10)}));
    }
    self.host = process_of(list[0]);
    self.connection = ConnectionId{++connections_};
    const ConnectionId id = *self.connection;
    later([this, i, id, uuid, list, rank, refuses] {
      Process& host = *processes_[static_cast<size_t>(process_of(list[0]))];
      if (host.state == State::kDead) return later([this, i] { fail(i, "connection refused"); });
      if (open(i, id))
        carry_out(process_of(list[0]),
                  host.meets.arrive(id, {uuid, list, rank, refuses ? "no" : ""}, clock_at(10)));
    });
    if (odd && fault_ == Fault::kKilled) later([this, i] { kill(i); });
    if (odd && fault_ == Fault::kGivesUp) later([this, i] { fail(i, kGaveUp); });
  }
  static int process_of(const ReconfigureHandle& handle) { return handle.group.back() - '0'; }
  bool open(int i, ConnectionId id) const {
    const Process& self = *processes_[static_cast<size_t>(i)];
    return self.state != State::kDead && self.connection == id;
  }

  void kill(int i) {
    Process& self = *processes_[static_cast<size_t>(i)];
    if (self.state == State::kSucceeded) return;
    if (self.connection) close(i);
    self.state = State::kDead;
    host_lost_ = i == host_of_run_;
    for (const auto& [id, sent] : invitations_) {
      if (sent.host == i) withdraw(id, sent);
      if (sent.to == i) later([this, id = id] { unreachable(id, "connection reset"); });
    }
    for (int other = 0; other < static_cast<int>(processes_.size()); ++other) {
      Process& peer = *processes_[static_cast<size_t>(other)];
      if (other != i && peer.host == i && peer.connection)
        later([this, other] { fail(other, "its host was lost"); });
    }
  }
  void close(int i) {
    Process& self = *processes_[static_cast<size_t>(i)];
    const ConnectionId id = *std::exchange(self.connection, std::nullopt);
    const int host = self.host;
    later([this, id, host] {
      Process& at = *processes_[static_cast<size_t>(host)];
      at.in_run.erase(id.value);
      if (at.state != State::kDead) carry_out(host, at.meets.closed(id));
    });
  }
  void withdraw(uint64_t id, const Invitation& sent) {
    later([this, id, to = sent.to] {
      Process& at = *processes_[static_cast<size_t>(to)];
      if (at.state != State::kDead) carry_out(to, at.meets.closed({id}));
    });
  }
  void unreachable(uint64_t id, const std::string& why) {
    const auto sent = invitations_.extract(id);
    if (sent.empty()) return;
    const auto [host, to, rank] = sent.mapped();
    Process& at = *processes_[static_cast<size_t>(host)];
    if (at.state == State::kDead) return;
    const Status lost{Code::kSystem, why, {}};
    carry_out(host, at.meets.unreachable(group_of(host), rank, lost));
  }
  void fail(int i, const std::string& why) { end(i, State::kFailed, why); }
  void end(int i, State state, const std::string& why) {
    Process& self = *processes_[static_cast<size_t>(i)];
    if (self.state != State::kCalls) return;
    self.state = state;
    self.why = why;
    if (state == State::kFailed && self.connection) close(i);
    std::optional<protocol::Reject> failed;
    if (state == State::kFailed) failed = protocol::Reject{Code::kSystem, why};
    carry_out(i, self.meets.over(group_of(i), failed));
  }
  int owner(ConnectionId id) const {
    for (int i = 0; i < static_cast<int>(processes_.size()); ++i)
      if (processes_[static_cast<size_t>(i)]->connection == id) return i;
    return -1;
  }

  void carry_out(int host, const Rendezvous::Decisions& decisions) {
    for (const auto& decision : decisions)
      std::visit([this, host](const auto& d) { carry_out(host, d); }, decision);
  }
  void carry_out(int host, const Rendezvous::Admit& d) {
    Process& self = *processes_[static_cast<size_t>(host)];
    self.in_run.insert(d.connection.value);
    if (self.in_run.size() < list_of(host).size()) return;
    later([this, host, run = d.run] { begin(host, run); });
  }
  void begin(int host, const std::string& run) {
    Process& self = *processes_[static_cast<size_t>(host)];
    if (self.in_run.size() < list_of(host).size() || self.state == State::kDead) return;
    carry_out(host, self.meets.begun(run));
    host_of_run_ = host;
    for (const uint64_t id : self.in_run) {
      later([this, id] {
        if (const int i = owner({id}); i >= 0) end(i, State::kSucceeded, "");
      });
    }
  }
  void carry_out(int host, const Rendezvous::Invite& d) {
    const uint64_t id = ++connections_;
    const int to = process_of(d.seen.handles[d.seen.rank]);
    invitations_[id] = {host, to, d.seen.rank};
    later([this, id, to, d] {
      Process& at = *processes_[static_cast<size_t>(to)];
      if (!invitations_.contains(id)) return;
      if (at.state == State::kDead) return unreachable(id, "connection refused");
      carry_out(to, at.meets.arrive({id}, d.seen, clock_at(10)));
    });
  }
  void carry_out(int host, const Rendezvous::Dismiss& /*d*/) {
    for (const auto& [id, sent] : invitations_)
      if (sent.host == host) withdraw(id, sent);
    std::erase_if(invitations_, [host](const auto& sent) { return sent.second.host == host; });
  }
  void carry_out(int /*host*/, const Rendezvous::Refuse& d) {
    later([this, d] {
      if (const auto sent = invitations_.extract(d.connection.value); !sent.empty()) {
        const auto [host, to, rank] = sent.mapped();
        Process& at = *processes_[static_cast<size_t>(host)];
        if (at.state != State::kDead)
          carry_out(host, at.meets.declined(group_of(host), rank, d.why));
        return;
      }
      if (const int i = owner(d.connection); i >= 0) fail(i, d.why.text);
    });
  }
  void carry_out(int host, const Rendezvous::End& d) {
    Process& self = *processes_[static_cast<size_t>(host)];
    for (const uint64_t id : std::exchange(self.in_run, {}))
      carry_out(host, Rendezvous::Refuse{{id}, d.why});
    later([this, host, d] { fail(host, d.why.text); });
  }
  // Its processes come with a Hello only.
  void carry_out(int /*host*/, const Rendezvous::SendToDoor& /*d*/) { FAIL(); }
  void carry_out(int /*host*/, const Rendezvous::Regroup& /*d*/) { FAIL(); }
  void carry_out(int host, const Rendezvous::Fail& d) {
    later([this, host, d] { fail(host, d.why.text); });
  }

  void expire() {
    expired_ = true;
    const bool waits = std::any_of(processes_.begin(), processes_.end(), [](const auto& process) {
      return process->state == State::kCalls;
    });
    late_ = waits && fault_ != Fault::kNeverCalls;
    for (int i = 0; i < static_cast<int>(processes_.size()); ++i) {
      Process& self = *processes_[static_cast<size_t>(i)];
      if (self.state != State::kDead) carry_out(i, self.meets.expire(clock_at(10)));
      later([this, i] { fail(i, "timed out by itself"); });
    }
  }

  std::string verdict() const {
    size_t succeeded = 0, failed = 0;
    for (const auto& process : processes_) {
      succeeded += process->state == State::kSucceeded ? 1 : 0;
      failed += process->state == State::kFailed ? 1 : 0;
      if (process->state == State::kCalls) return "a call never ends";
    }
    if (late_) return "only the timeout ends a call: " + why();
    if (fault_ == Fault::kNone && succeeded < processes_.size()) return "a call failed: " + why();
    // The run had begun, so this is a loss in its first epoch, though some have not heard of it.
    if (host_lost_ || (fault_ == Fault::kGivesUp && host_of_run_ >= 0)) return {};
    if (fault_ == Fault::kGivesUp && !all_know_who_gave_up()) return why();
    if (succeeded > 0 && failed > 0) return "some calls failed, and others did not: " + why();
    return {};
  }
  // Every other process has its name and its reason.
  bool all_know_who_gave_up() const {
    return std::all_of(processes_.begin(), processes_.end(), [this](const auto& one) {
      const bool names_it = one->why.find(handle(odd_).at.host + ":") != std::string::npos;
      return one->why.ends_with(kGaveUp) && (names_it || one == processes_[size_t(odd_)]);
    });
  }
  std::string why() const {
    std::string out = "fault " + std::to_string(static_cast<int>(fault_)) + ": ";
    for (const auto& process : processes_) out += "[" + process->why + "] ";
    return out;
  }

  Random random_;
  std::vector<int> list_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::function<void()>> events_;
  int odd_ = 0;
  Fault fault_ = Fault::kNone;
  uint64_t connections_ = 0;
  std::map<uint64_t, Invitation> invitations_;
  bool expired_ = false;
  bool late_ = false;       // somebody waits for the timeout, though nobody else is missing
  int host_of_run_ = -1;    // of the run that has begun
  bool host_lost_ = false;  // after its run had begun
};

TEST(Rendezvous, BeginsForAllOrForNoneInAnyOrderOfEvents) {
  for (uint64_t seed = 1; seed <= 20'000; ++seed) {
    World world(seed, static_cast<int>(2 + seed % 4));
    const std::string wrong = world.run();
    ASSERT_EQ(wrong, "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace pccl::master
