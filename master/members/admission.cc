#include "master/members/admission.h"

#include <algorithm>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/protocol/limits.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

using protocol::Hello;
using protocol::Reject;
using protocol::VersionRange;

std::optional<Reject> invalid(std::string text) {
  return Reject{Code::kInvalidArgument, std::move(text)};
}

std::optional<Reject> refuse_name(const std::string& what, const std::string& name) {
  if (is_printable(name)) return std::nullopt;
  return invalid("the name of the " + what + " has characters that cannot be shown: \"" +
                 printable(name) +
                 "\". Allowed is UTF-8 without control and formatting characters");
}

std::optional<Reject> refuse_bad(const Status& status) {
  if (status.ok()) return std::nullopt;
  return Reject{status.code, status.message};
}

std::optional<Reject> refuse_values(const Hello& hello) {
  if (auto bad = refuse_run(hello.run)) return bad;
  if (auto bad = refuse_name("launch", hello.launch)) return bad;
  if (auto bad = refuse_name("peer", hello.name)) return bad;
  if (hello.min_peers < 1 || hello.min_peers > protocol::kMembersMax) {
    return invalid("min_peers is " + std::to_string(hello.min_peers) + ", allowed are 1 to " +
                   std::to_string(protocol::kMembersMax));
  }
  if (hello.founders < hello.min_peers || hello.founders > protocol::kMembersMax) {
    return invalid("a world of " + std::to_string(hello.founders) + " is to begin, allowed are " +
                   std::to_string(hello.min_peers) + " (min_peers) to " +
                   std::to_string(protocol::kMembersMax));
  }
  return refuse_bad(check(hello.settings));
}

// A wanted rank matters only at the founding.
std::optional<Reject> refuse_rank(const Hello& hello, const Membership* membership) {
  if (hello.rank < 0 || (membership != nullptr && !membership->members().empty())) {
    return std::nullopt;
  }
  PCCL_ASSERT(hello.founders > 0);  // refuse_values() has checked it
  if (static_cast<uint32_t>(hello.rank) >= hello.founders) {
    return invalid("rank " + std::to_string(hello.rank) + " is wanted in a world of " +
                   std::to_string(hello.founders) + ": ranks go from 0 to " +
                   std::to_string(hello.founders - 1));
  }
  if (membership == nullptr) return std::nullopt;
  const auto holder = membership->wished_by(hello.rank);
  if (!holder || !membership->find(*holder)->connected) return std::nullopt;
  return invalid("rank " + std::to_string(hello.rank) + " is already taken by " +
                 membership->describe(*holder) + ": two processes were started with the same rank");
}

// Refuses a peer of a different launch. Otherwise two launches with one run name could train one
// after the other, or some ranks of one with some ranks of the other, without any error.
std::optional<Reject> refuse_launch(const Hello& hello, const Membership& membership) {
  PCCL_ASSERT(!membership.empty());
  if (hello.launch.empty()) return std::nullopt;
  for (const auto& [peer, about] : membership.peers()) {
    const bool same = about.launch == hello.launch && about.wish == hello.rank;
    if (!same || hello.rank < 0 || !about.connected || !membership.is_member(peer)) continue;
    return Reject{Code::kInvalidState,
                  "rank " + std::to_string(hello.rank) +
                      " of this launch trains already: " + membership.describe(peer) +
                      ". Two launches have the same name (" + hello.launch +
                      "): give each torchrun another --rdzv-id, or name another run "
                      "(PCCL_MASTER=pccl://host:port/ANOTHER_NAME)"};
  }
  std::vector<std::string> others;
  for (const auto& [peer, about] : membership.peers()) {
    if (about.launch != hello.launch) others.push_back(membership.describe(peer));
  }
  if (others.empty()) return std::nullopt;
  const size_t named = std::min(others.size(), protocol::kRanksNamedMax);
  std::string names;
  for (size_t i = 0; i < named; ++i) names += (i == 0 ? "" : ", ") + others[i];
  if (others.size() > named) names += " and " + std::to_string(others.size() - named) + " more";
  return Reject{
      Code::kInvalidState,
      "run \"" + hello.run + "\" is under way with peers of another launch: " + names +
          ". A launch of several ranks begins a run of its own: name another one "
          "(PCCL_MASTER=pccl://host:port/ANOTHER_NAME), or end the other launch first. To join a "
          "training that is under way, start its peers one by one, each with a world of size 1 or "
          "with init_method=\"pccl://host:port/" +
          hello.run + "\""};
}

std::optional<Reject> refuse_group(const Hello& hello, size_t group_count) {
  if (group_count < protocol::kGroupsMax) return std::nullopt;
  return Reject{
      Code::kInvalidState,
      "run \"" + hello.run + "\" has " + count_text(group_count, "peer group") + ", and " +
          std::to_string(protocol::kGroupsMax) + " are the most there can be: peer group " +
          std::to_string(hello.group.value) +
          " would be one more. Give the same peer_group to all who work together, or name "
          "another run "
          "(PCCL_MASTER=pccl://host:port/ANOTHER_NAME)"};
}

protocol::Speaker speaker_of_peer(const VersionRange& versions, const std::string& library) {
  return {library.empty() ? "this peer" : "this peer (" + library + ")", versions};
}

}  // namespace

std::optional<Reject> refuse_versions(const VersionRange& peer, const std::string& library,
                                      const VersionRange& master) {
  if (common(peer, master)) return std::nullopt;
  return Reject{Code::kProtocol, mismatch(speaker_of_peer(peer, library), {"the master", master})};
}

std::optional<Reject> refuse_version_of_run(const VersionRange& peer, const std::string& library,
                                            const std::string& run, uint16_t version) {
  if (peer.contains(version)) return std::nullopt;
  return Reject{Code::kProtocol,
                mismatch(speaker_of_peer(peer, library),
                         protocol::speaker_of_run("run \"" + run + "\"", version))};
}

bool is_of_other_launch(const Hello& hello, const Membership& membership) {
  const auto& peers = membership.peers();
  return !hello.launch.empty() && std::any_of(peers.begin(), peers.end(), [&hello](const auto& at) {
    return at.second.launch != hello.launch;
  });
}

std::optional<Reject> refuse_run(const std::string& name) {
  if (name.empty()) return invalid("the name of the run is empty");
  return refuse_name("run", name);
}

std::optional<Reject> refuse(const Hello& hello, const protocol::RunSettings* settings,
                             const Membership* membership, const Quorum& quorum,
                             size_t group_count) {
  PCCL_ASSERT(membership == nullptr || group_count > 0);
  PCCL_ASSERT(settings != nullptr || membership == nullptr || membership->empty());
  if (auto values = refuse_values(hello)) return values;
  if (settings != nullptr) {
    if (auto differs = refuse_bad(compare(hello.settings, *settings))) return differs;
  }
  if (membership == nullptr) {
    if (auto full = refuse_group(hello, group_count)) return full;
  }
  if (membership != nullptr && !membership->empty()) {
    if (auto launch = refuse_launch(hello, *membership)) return launch;
    const std::string group = "peer group " + std::to_string(hello.group.value);
    const auto differs = [&group](const char* what, uint32_t here, uint32_t there) {
      return invalid(std::string(what) + " is " + std::to_string(here) + " here and " +
                     std::to_string(there) + " for the other peers of " + group +
                     ": give all the same");
    };
    if (hello.min_peers != quorum.min_peers) {
      return differs("min_peers", hello.min_peers, quorum.min_peers);
    }
    if (membership->members().empty() && hello.founders != quorum.founders) {
      return differs("the world size", hello.founders, quorum.founders);
    }
    if (membership->peers().size() >= protocol::kMembersMax) {
      return Reject{Code::kInvalidState, group + " is full: it has " +
                                             count_text(membership->peers().size(), "peer") +
                                             ", the most there can be"};
    }
  }
  return refuse_rank(hello, membership);
}

}  // namespace pccl::master
