#include "master/text_format.h"

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"

namespace pccl::master {

RankNames names_of(const std::vector<protocol::Member>& members) {
  RankNames names;
  names.reserve(members.size());
  for (const protocol::Member& member : members) names.push_back(member.name);
  return names;
}

std::string rank_text(uint32_t rank, const RankNames& names) {
  const bool named = rank < names.size() && !names[rank].empty();
  return std::to_string(rank) + (named ? " (" + names[rank] + ")" : "");
}

std::string ranks_text(const std::vector<uint32_t>& ranks, const RankNames& names) {
  PCCL_ASSERT(!ranks.empty());
  if (ranks.size() == 1) return "rank " + rank_text(ranks[0], names);
  const bool all = ranks.size() <= protocol::kRanksNamedMax;
  const size_t named = all ? ranks.size() - 1 : protocol::kRanksNamedMax;
  std::string out = "ranks " + rank_text(ranks[0], names);
  for (size_t i = 1; i < named; ++i) out += ", " + rank_text(ranks[i], names);
  out += " and ";
  if (all) return out + rank_text(ranks.back(), names);
  return out + std::to_string(ranks.size() - named) + " more";
}

std::string group_text(GroupId group, const char* preposition) {
  if (group.value == 0) return {};
  return std::string(preposition) + " peer group " + std::to_string(group.value);
}

std::string shortage_text(size_t left, size_t min_peers) {
  return count_text(left, "member") + (left == 1 ? " is" : " are") + " left, and min_peers is " +
         std::to_string(min_peers);
}

std::string change_text(size_t joined, size_t gone) {
  std::string out;
  if (joined > 0) out = ": " + std::to_string(joined) + " joined";
  if (gone > 0) out += (joined > 0 ? ", " : ": ") + std::to_string(gone) + " gone";
  return out;
}

std::string rate_text(double bytes_per_second) {
  struct Unit {
    double bytes;
    const char* name;
  };
  constexpr Unit kUnits[] = {{1e12, "TB/s"}, {1e9, "GB/s"}, {1e6, "MB/s"}, {1e3, "kB/s"}};
  Unit chosen{1, "B/s"};
  for (const Unit& unit : kUnits) {
    if (chosen.bytes == 1 && bytes_per_second >= unit.bytes) chosen = unit;
  }
  const double count = bytes_per_second / chosen.bytes;
  char out[64];
  std::snprintf(out, sizeof out, count < 100 ? "%.3g %s" : "%.0f %s", count, chosen.name);
  return out;
}

std::string hash_text(uint64_t value) {
  char out[17];
  const int written =
      std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(value));
  PCCL_ASSERT(written == 16);
  return out;
}

std::string fault_text(LinkFault fault) {
  switch (fault) {
    case LinkFault::kOther: return " (its log has the reason, with PCCL_LOG=info)";
    case LinkFault::kRefused: return ": connection refused";
    case LinkFault::kNoAnswer: return ": no answer";
    case LinkFault::kUnknownName: return ": unknown host name";
    case LinkFault::kAnotherProgram: return ": another program answers";
    case LinkFault::kAnotherPeer: return ": another peer answers";
    case LinkFault::kOnlySmallPackets: return ": only small packets arrive";
  }
  return "";
}

}  // namespace pccl::master
