#include "master/epochs/decision_mac.h"

#include <utility>
#include <vector>

#include "csrc/net/keys.h"
#include "csrc/protocol/codec.h"
#include "csrc/protocol/limits.h"

namespace pccl::master {

uint64_t mac_of(const protocol::Key& decisions, Epoch epoch, uint64_t index,
                const protocol::Verdict& verdict) {
  protocol::Verdict counted = verdict;
  counted.text.clear();
  counted.mac = 0;
  std::vector<std::byte> bytes;
  encode(protocol::Verdicts{epoch, index, {std::move(counted)}}, bytes);
  return net::mac(decisions, bytes);
}

// A Ping with the generation stands before the answer: a message of another kind than that of a
// verdict.
uint64_t mac_of(const protocol::Key& decisions, Epoch generation, const protocol::Answer& answer) {
  protocol::Answer counted = answer;
  counted.mac = 0;
  std::vector<std::byte> bytes;
  encode(protocol::Ping{0, 0, generation}, bytes);
  encode(counted, bytes);
  return net::mac(decisions, bytes);
}

Status check_decisions(const protocol::Key& decisions, Epoch generation,
                       const protocol::Resume& resume) {
  uint64_t index = resume.stable_index;
  for (const protocol::Verdict& verdict : resume.verdicts) {
    if (verdict.mac != mac_of(decisions, resume.epoch, index, verdict)) {
      return violation("Resume with verdict " + std::to_string(index) + " of epoch " +
                       text(resume.epoch) + ", which no master of this run has made");
    }
    ++index;
  }
  if (resume.verdict_index > 0) {
    // A member keeps no more verdicts than this.
    const bool full = resume.verdicts.size() == protocol::kOpsOpenMax;
    if (!full && (resume.verdicts.empty() ||
                  resume.verdicts.size() <= resume.verdicts.back().unacknowledged)) {
      return violation("Resume after verdict " + std::to_string(resume.verdict_index) +
                       " of epoch " + text(resume.epoch) + ", without verdicts from " +
                       std::to_string(resume.stable_index) +
                       " down, which not all members have received");
    }
  }
  const auto& answer = resume.last_answer;
  if (answer && answer->mac != mac_of(decisions, generation, *answer)) {
    return violation("Resume with an answer to joint call " + std::to_string(answer->number) +
                     ", which no master of this run has made");
  }
  return {};
}

}  // namespace pccl::master
