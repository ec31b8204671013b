#include "master/introduction.h"

#include "csrc/protocol/limits.h"
#include "master/words.h"

namespace pccl::master {
namespace {

using protocol::Hello;
using protocol::Reject;

std::string milliseconds_text(uint32_t ms) { return text(Duration(std::chrono::milliseconds(ms))); }

std::optional<Reject> invalid(std::string text) {
  return Reject{Code::kInvalidArgument, std::move(text)};
}

std::optional<Reject> refuse_values(const Hello& hello) {
  const Duration peer_timeout = std::chrono::milliseconds(hello.peer_timeout_ms);
  if (hello.run.empty()) return invalid("the name of the run is empty");
  if (hello.min_peers < 1 || hello.min_peers > protocol::kMembersMax) {
    return invalid("min_peers is " + std::to_string(hello.min_peers) + ", allowed are 1 to " +
                   std::to_string(protocol::kMembersMax));
  }
  if (hello.founders < hello.min_peers || hello.founders > protocol::kMembersMax) {
    return invalid("a world of " + std::to_string(hello.founders) + " is to begin, allowed are " +
                   std::to_string(hello.min_peers) + " (min_peers) to " +
                   std::to_string(protocol::kMembersMax));
  }
  if (peer_timeout < protocol::kPeerTimeoutMin || peer_timeout > protocol::kPeerTimeoutMax) {
    return invalid("peer_timeout is " + text(peer_timeout) + ", allowed are " +
                   text(protocol::kPeerTimeoutMin) + " to " + text(protocol::kPeerTimeoutMax));
  }
  return std::nullopt;
}

std::optional<Reject> refuse_terms(const Hello& hello, const Terms& terms) {
  if (hello.policy != terms.policy) {
    return invalid(
        "PCCL_ON_PEER_LOSS differs from that of the other peers of this run: give all "
        "the same");
  }
  if (hello.peer_timeout_ms != terms.peer_timeout_ms) {
    return invalid("peer_timeout is " + milliseconds_text(hello.peer_timeout_ms) + " here and " +
                   milliseconds_text(terms.peer_timeout_ms) +
                   " in the rest of this run: set PCCL_PEER_TIMEOUT to the same on all peers");
  }
  return std::nullopt;
}

// A wanted rank counts only at the founding.
std::optional<Reject> refuse_rank(const Hello& hello, const Membership* membership) {
  if (hello.rank < 0 || (membership != nullptr && !membership->members().empty())) {
    return std::nullopt;
  }
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

}  // namespace

std::optional<Reject> refuse_version(uint16_t version, const std::string& library) {
  if (version == protocol::kVersion) return std::nullopt;
  const std::string who = library.empty() ? "this peer" : "this peer (" + library + ")";
  return Reject{Code::kProtocol,
                "version mismatch: " + who + " speaks version " + std::to_string(version) +
                    " of the pccl protocol, the master version " +
                    std::to_string(protocol::kVersion) + ": install the same pccl on both sides"};
}

std::optional<Reject> refuse(const Hello& hello, const std::optional<Terms>& terms,
                             const Membership* membership, const Quorum& quorum) {
  if (auto version = refuse_version(hello.version, hello.library)) return version;
  if (auto values = refuse_values(hello)) return values;
  if (terms) {
    if (auto differs = refuse_terms(hello, *terms)) return differs;
  }
  if (membership != nullptr && !membership->empty()) {
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
                                             counted(membership->peers().size(), "peer") +
                                             ", the most there can be"};
    }
  }
  return refuse_rank(hello, membership);
}

}  // namespace pccl::master
