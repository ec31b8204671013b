// OpTable: the operations of one epoch, and the progress of each member in them, as values.
// Operations owns a table and changes it by its own rules; OperationWaits reads the table. It is
// pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/clock.h"
#include "csrc/protocol/messages.h"
#include "master/epochs/any_source.h"
#include "master/epochs/latecomers.h"
#include "master/text_format.h"

namespace pccl::master {

// A function that describes the present calls of the members of these ranks.
using MissingText = std::function<std::string(const std::vector<uint32_t>& ranks)>;

struct OpTable {
  enum class At : uint8_t { kNothing, kBegun, kDone };
  struct Op {
    protocol::OpInfo info;  // of the first Begin; settled: without the part sizes
    uint32_t first = 0;     // the rank of the first Begin
    bool settled = false;
    // Taken from the reports of members after a restart of the master. Members that did not report
    // it as uncalled are assumed to have begun it.
    bool restored = false;
    uint32_t begun = 0;  // number of members that it concerns and that have begun it
    uint32_t done = 0;
    std::vector<At> at;  // by rank
    Instant since;       // time of the first Begin
    // The rank of the last Begin so far, its time, and the time of the Begin before it.
    uint32_t last = 0;
    Instant last_at, before_last_at;
    bool faced = false;  // it is a send, and the opposite send has ended (OperationWaits::faces)
    // The descriptions that differ from `info`, by rank. Uneven parts may differ and still fit
    // (protocol::fit()).
    std::map<uint32_t, protocol::OpInfo> otherwise;
    // Its abort is proposed, and the members are asked. By rank: the binding answers.
    std::optional<protocol::AbortProposal> proposal;
    std::map<uint32_t, protocol::OpState> answers;
    // The member has answered that it is not done.
    bool is_bound(uint32_t rank) const {
      const auto answer = answers.find(rank);
      return answer != answers.end() && answer->second == protocol::OpState::kNotDone;
    }
  };

  Epoch epoch;
  std::vector<PeerId> members;  // in rank order, as are `names`
  RankNames names;
  std::map<PeerId, uint32_t> ranks;
  std::map<OpKey, Op> ops;
  size_t open = 0;      // operations that are not settled
  size_t proposed = 0;  // those of them that have an abort proposal
  AnySource any_source;
  std::set<uint32_t> left;  // the ranks that have left
  bool wan = false;         // EpochStart::rtt: the members agree on operations without the master
  // For each operation that is not settled: the members that have begun it in an earlier epoch of
  // the generation, and begin it again in this epoch.
  std::map<OpKey, std::set<PeerId>> begun_before;

  // How an operation has ended, for the statistics.
  struct Ending {
    protocol::OpKind kind = protocol::OpKind::kAllReduce;
    bool committed = false;
    double bytes = 0;  // of the tensor of one rank
    Instant since;     // the first Begin
    // Set if the operation is committed, was called by all members, and is no transfer.
    std::optional<Latecomers::Begins> begins = {};
  };
  static Ending ending(const Op& op, bool committed) {
    return {op.info.kind, committed, bytes_of(op.info), op.since};
  }
  // Bytes of the tensor of one rank. A hostile description can have any sizes, so this is no
  // integer.
  static double bytes_of(const protocol::OpInfo& info) {
    double elements = static_cast<double>(info.count);
    for (const uint64_t part : info.sends) elements += static_cast<double>(part);
    return elements * static_cast<double>(element_bytes(info.dtype));
  }
  static bool transfers(const protocol::OpInfo& info) {
    return info.kind == protocol::OpKind::kSend;
  }
  // Whether a member may have committed this open operation without the master.
  bool may_be_returned(const Op& op) const {
    return wan && protocol::agreed_among_members(op.info);
  }
  uint32_t rank(PeerId peer) const {
    const auto at = ranks.find(peer);
    PCCL_ASSERT(at != ranks.end());
    return at->second;
  }
  // The open abort proposals that a member has not answered.
  std::vector<protocol::AbortProposal> unanswered(PeerId peer) const {
    std::vector<protocol::AbortProposal> all;
    if (proposed == 0) return all;
    for (const auto& [key, op] : ops) {
      if (op.proposal && !op.settled && !op.answers.contains(rank(peer)))
        all.push_back(*op.proposal);
    }
    return all;
  }
  // Another member has called the operation with the same description, but at another line of the
  // program (OpInfo::site). `text`: "rank 0 called ... at a.py:3, and rank 1 at b.py:9".
  struct OtherSite {
    PeerId first;
    std::string site, text;
  };
  std::optional<OtherSite> other_site(PeerId peer, OpKey key, const protocol::OpInfo& info) const {
    const Op* const op = find(key);
    if (info.site.empty() || op == nullptr || op->info.site.empty()) return std::nullopt;
    // The two ends of a transfer are different calls.
    const bool same = !transfers(info) && protocol::same_but_for_parts(op->info, info);
    if (!same || op->info.site == info.site) return std::nullopt;
    return OtherSite{members[op->first], op->info.site,
                     ranks_text({op->first}, names) + " called " + name(info, key) + " at " +
                         op->info.site + ", and " + ranks_text({rank(peer)}, names) + " at " +
                         info.site};
  }
  const Op* find(OpKey key) const {  // null: it is unknown
    const auto at = ops.find(key);
    return at == ops.end() ? nullptr : &at->second;
  }
  bool has_begun(PeerId peer, OpKey key) const {
    const Op* const op = find(key);
    return op != nullptr && op->at[rank(peer)] != At::kNothing;
  }
  // Whether the peer has begun this open operation in an earlier epoch of the generation: it begins
  // it again in this epoch.
  bool is_to_begin_again(PeerId peer, OpKey key) const {
    const auto before = begun_before.find(key);
    return before != begun_before.end() && before->second.contains(peer);
  }
  bool concerns(const Op& op, uint32_t rank) const {
    PCCL_DCHECK(rank < members.size() && op.at.size() == members.size());
    if (!transfers(op.info)) return true;
    return members[rank] == op.info.root || members[rank] == op.info.receiver;
  }
  bool is_one_of(const std::vector<PeerId>& some, uint32_t rank) const {
    return std::find(some.begin(), some.end(), members[rank]) != some.end();
  }
  // The number of members that the operation concerns.
  uint32_t parties(const Op& op) const {
    return transfers(op.info) ? 2 : static_cast<uint32_t>(members.size());
  }
  std::vector<uint32_t> ranks_at(const Op& op, At progress) const {
    std::vector<uint32_t> some;
    for (uint32_t rank = 0; rank < members.size(); ++rank) {
      if (concerns(op, rank) && op.at[rank] == progress) some.push_back(rank);
    }
    return some;
  }
  protocol::PeerText who() const {
    return [this](PeerId peer) {
      const auto at = ranks.find(peer);
      return at == ranks.end() ? "peer " + text(peer) : "rank " + std::to_string(at->second);
    };
  }
  // "all_reduce(...) (t, #1) in epoch 1.5".
  std::string name(const protocol::OpInfo& info, OpKey key) const {
    return text(info, who()) + " " + text(info, key) + " in epoch " + text(epoch);
  }
};

}  // namespace pccl::master
