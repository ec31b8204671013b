// The rendezvous of a process, and handles of others, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "master/runs/rendezvous.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {

using protocol::ReconfigureHandle;
using Handles = std::vector<ReconfigureHandle>;

inline constexpr Instant kNever{std::chrono::hours(1)};
inline Instant clock_at(int seconds) { return Instant{std::chrono::seconds(seconds)}; }

inline std::string group_of(int process) { return std::string(15, '0') + std::to_string(process); }
inline ReconfigureHandle handle(int process, uint64_t generation = 1) {
  return {{"10.0.0." + std::to_string(process), 4000}, group_of(process), generation};
}
inline Handles handles(const std::vector<int>& processes) {
  Handles out;
  for (const int process : processes) out.push_back(handle(process));
  return out;
}
inline uint32_t rank_of(int process, const Handles& list) {
  const auto own = std::find_if(list.begin(), list.end(), [process](const auto& one) {
    return one.group == group_of(process);
  });
  return static_cast<uint32_t>(own - list.begin());
}

// The master of process 1, to which others come.
class RendezvousTest : public testing::Test {
 protected:
  void SetUp() override { meets.open(group_of(1)); }
  void TearDown() override { meets.check(); }

  void call(int64_t uuid, const Handles& list, Instant until = kNever) {
    note(meets.call(group_of(1), {uuid, list, rank_of(1, list), until}));
  }
  void over(const std::optional<protocol::Reject>& failed = {}) {
    note(meets.over(group_of(1), failed));
  }
  void unreachable(uint32_t rank, const std::string& why, Code code = Code::kSystem) {
    note(meets.unreachable(group_of(1), rank, {code, why, {}}));
  }
  // The master of the first process in the list invites process 1.
  void invite(uint64_t connection, int64_t uuid, const Handles& list, Instant until = kNever) {
    note(meets.arrive({connection}, {uuid, list, rank_of(1, list), {}, true}, until));
  }
  void arrive(uint64_t connection, int64_t uuid, const Handles& list, uint32_t rank,
              const std::string& refusal = {}, Instant until = kNever) {
    note(meets.arrive({connection}, {uuid, list, rank, refusal}, until));
  }
  void note(const Rendezvous::Decisions& decisions) {
    for (const auto& decision : decisions) std::visit([this](const auto& d) { note(d); }, decision);
  }
  void note(const Rendezvous::Admit& d) { add("admit " + std::to_string(d.connection.value)); }
  void note(const Rendezvous::Refuse& d) {
    add("refuse " + std::to_string(d.connection.value) + ": " + d.why.text);
  }
  void note(const Rendezvous::SendToDoor& d) {
    add("to the door " + std::to_string(d.connection.value));
  }
  void note(const Rendezvous::Regroup& d) {
    std::string line = "regroup";
    for (const ConnectionId member : d.members) line += " " + std::to_string(member.value);
    add(line);
  }
  void note(const Rendezvous::End& d) { add("end: " + d.why.text); }
  void note(const Rendezvous::Fail& d) { add("fail: " + d.why.text); }
  void note(const Rendezvous::Invite& d) { invited.insert(d.seen.rank); }
  void note(const Rendezvous::Dismiss&) { invited.clear(); }
  void add(const std::string& line) { lines.push_back(line); }
  Lines take() { return std::exchange(lines, {}); }

  Rendezvous meets;
  Lines lines;
  std::set<uint32_t> invited;  // the ranks of the invitations that are under way
};

}  // namespace pccl::master
