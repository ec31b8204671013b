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

std::string count_text(uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string hash_text(uint64_t value) {
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(value));
  return out;
}

std::string address_text(const std::string& host, uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
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

std::string cut(std::string text) {
  if (text.size() <= protocol::kTextBytesMax) return text;
  size_t length = protocol::kTextBytesMax;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;
  text.resize(length);
  return text;
}

}  // namespace pccl::master
