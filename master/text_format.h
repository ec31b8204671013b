// text_format: text for messages to people: ranks, counts, hashes, addresses. Pure functions. Lists
// never grow with the number of peers (limits.h, kRanksNamedMax).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/ids.h"
#include "csrc/base/link_fault.h"
#include "csrc/base/text.h"

namespace pccl::protocol {
struct Member;
}  // namespace pccl::protocol

namespace pccl::master {

using pccl::text;  // formats durations; the functions of this namespace would hide it

// The names of members, by rank, for ranks_text(). The list may lack the last ranks, and a name may
// be empty.
using RankNames = std::vector<std::string>;
RankNames names_of(const std::vector<protocol::Member>& members);  // in rank order

// "rank 2", "ranks 0, 1 and 3", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more"; with names "rank 2
// (tokyo-3)", "ranks 0 (tokyo-1) and 1 (osaka)". REQUIRES: at least one rank.
std::string ranks_text(const std::vector<uint32_t>& ranks, const RankNames& names);
std::string rank_text(uint32_t rank, const RankNames& names);  // "2 (tokyo-3)"

// " of peer group 3"; empty for group 0, the only group of most runs.
std::string group_text(GroupId group, const char* preposition = " of");

// "1 member is left, and min_peers is 2".
std::string shortage_text(size_t left, size_t min_peers);

// ": 2 joined, 1 gone"; empty if both are 0.
std::string change_text(size_t joined, size_t gone);

// "12.3 MB/s": megabytes are millions of bytes.
std::string rate_text(double bytes_per_second);

// The hash of a shared state: "00c0ffee00c0ffee".
std::string hash_text(uint64_t hash);

// The reason why a peer cannot be reached, in a form that a peer outside the group may see, for
// example ": connection refused". For LinkFault::kOther only the log of the peer that tried has the
// reason.
std::string fault_text(LinkFault fault);

}  // namespace pccl::master
