#include "master/text_format.h"

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::master {

std::string ranks_text(const std::vector<uint32_t>& ranks) {
  PCCL_ASSERT(!ranks.empty());
  if (ranks.size() == 1) return "rank " + std::to_string(ranks[0]);
  const bool all = ranks.size() <= protocol::kRanksNamedMax;
  const size_t named = all ? ranks.size() - 1 : protocol::kRanksNamedMax;
  std::string out = "ranks " + std::to_string(ranks[0]);
  for (size_t i = 1; i < named; ++i) out += ", " + std::to_string(ranks[i]);
  out += " and ";
  if (all) return out + std::to_string(ranks.back());
  return out + std::to_string(ranks.size() - named) + " more";
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
    case LinkFault::kOther: break;
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
