#include "master/epochs/mismatch_text.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::master {
namespace {

// A text about the first part whose sender and receiver give it different sizes; empty if there is
// none.
std::string unlike_parts(const Descriptions& called, const RankNames& names) {
  const size_t ranks = called.size();
  for (uint32_t from = 0; from < ranks; ++from) {
    for (uint32_t to = 0; to < ranks; ++to) {
      if (called[from] == nullptr || called[to] == nullptr) continue;
      const protocol::OpInfo &sender = *called[from], &receiver = *called[to];
      if (sender.sends.size() != ranks || receiver.sends.size() != ranks ||
          !protocol::same_but_for_parts(sender, receiver))
        continue;
      const uint64_t sent = protocol::sends_to(sender, to);
      const uint64_t expected = protocol::receives_from(receiver, from);
      if (sent == expected) continue;
      return ranks_text({from}, names) + " called " + text(sender.kind) + " with " +
             count_text(sent, "element") + " for " + ranks_text({to}, names) + ", which expects " +
             std::to_string(expected) + ". Both ranks have to give a part the same size";
    }
  }
  return {};
}

}  // namespace

// The text lists each variant with its ranks. The variant with the fewest ranks comes first,
// because it is probably the mistake.
std::string mismatch_text(const Descriptions& called, const RankNames& names,
                          const protocol::PeerText& who) {
  if (std::string parts = unlike_parts(called, names); !parts.empty()) return parts;
  std::vector<std::pair<std::vector<uint32_t>, const protocol::OpInfo*>> variants;
  for (uint32_t rank = 0; rank < called.size(); ++rank) {
    if (called[rank] == nullptr) continue;
    const auto same = std::find_if(variants.begin(), variants.end(), [&](const auto& variant) {
      return *variant.second == *called[rank];
    });
    same == variants.end() ? variants.push_back({{rank}, called[rank]})
                           : same->first.push_back(rank);
  }
  PCCL_ASSERT(variants.size() > 1);
  std::stable_sort(variants.begin(), variants.end(),
                   [](const auto& a, const auto& b) { return a.first.size() < b.first.size(); });
  std::string out;
  for (const auto& [ranks, info] : variants) {
    out += (out.empty() ? "" : "; ") + ranks_text(ranks, names) + " called " + text(*info, who);
    if (!info->site.empty()) out += " at " + info->site;
  }
  return out + ". All ranks must make the same calls, in the same order under one tag";
}

}  // namespace pccl::master
