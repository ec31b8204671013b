#include "master/epochs/resume.h"

#include <algorithm>
#include <set>
#include <utility>

#include "csrc/base/assert.h"
#include "master/context.h"

namespace pccl::master {
namespace {

using protocol::Message;
using protocol::Resume;

// Appends the verdicts from `index` on, and the EpochEnd, if the epoch has ended and the peer has
// not received it.
Status append_epoch(const AnnouncedEpoch& announced, uint64_t index, bool end_seen,
                    std::vector<Message>& messages) {
  const auto verdicts = announced.verdicts.since(announced.epoch, index);
  if (!verdicts) {
    return violation("Resume after verdict " + std::to_string(index) + " of epoch " +
                     text(announced.epoch) + ", which has " +
                     std::to_string(announced.verdicts.next_index()));
  }
  if (end_seen && !announced.end) {
    return violation("Resume after the end of epoch " + text(announced.epoch) +
                     ", which has not ended");
  }
  for (const protocol::Verdicts& some : *verdicts) messages.emplace_back(some);
  if (announced.end && !end_seen) messages.emplace_back(*announced.end);
  return {};
}

}  // namespace

EpochRecord AnnouncedEpoch::record() const {
  PCCL_ASSERT(!end || end->epoch == epoch);
  const auto& kept = verdicts.kept();
  return {epoch, verdicts.stable_index(), {kept.begin(), kept.end()}, end};
}

AnnouncedEpoch AnnouncedEpoch::restored(const EpochRecord& record,
                                        const std::vector<PeerId>& members) {
  PCCL_ASSERT(!record.end || record.end->epoch == record.epoch);
  return {record.epoch, VerdictLog(members, record.first_verdict, record.verdicts), record.end};
}

void Announced::end(protocol::EpochEnd how) {
  PCCL_ASSERT(how.epoch == current.epoch && !current.end);
  freeze.reset();
  current.end = std::move(how);
}

void Announced::begin(protocol::EpochStart next) {
  PCCL_ASSERT(next.epoch > current.epoch && !freeze);
  previous = std::move(current);
  current = {next.epoch, VerdictLog(ids(next.members)), {}};
  start = std::move(next);
}

Status check_form(const Resume& resume) {
  const bool whole = resume.verdict_index - resume.stable_index == resume.verdicts.size() &&
                     resume.stable_index <= resume.verdict_index;
  if (!whole || resume.ops.size() != resume.infos.size()) {
    return violation("Resume that contradicts itself");
  }
  if (resume.verdict_index > kVerdictIndexMax) return violation("Resume after too many verdicts");
  return {};
}

Result<std::vector<Message>> missed(const Announced& announced, const Resume& resume) {
  PCCL_ASSERT(announced.start.epoch == announced.current.epoch);
  PCCL_ASSERT(!announced.freeze || announced.freeze->epoch == announced.current.epoch);
  std::vector<Message> messages;
  if (resume.ops.size() != resume.infos.size()) {
    return violation("Resume with " + std::to_string(resume.ops.size()) + " operations and " +
                     std::to_string(resume.infos.size()) + " descriptions");
  }
  if (resume.epoch != announced.current.epoch) {
    const auto& joined = announced.start.joined;
    const bool newcomer =
        !resume.epoch && std::find(joined.begin(), joined.end(), resume.peer) != joined.end();
    if (!newcomer && (resume.epoch != announced.previous.epoch || !resume.epoch)) {
      return violation("Resume in epoch " + text(resume.epoch) + " while the group is in epoch " +
                       text(announced.current.epoch));
    }
    if (!newcomer) {
      const Status status =
          append_epoch(announced.previous, resume.verdict_index, resume.ended, messages);
      if (!status.ok()) return status;
    }
    messages.emplace_back(announced.start);
  }
  const bool here = resume.epoch == announced.current.epoch;
  const Status status = append_epoch(announced.current, here ? resume.verdict_index : 0,
                                     here && resume.ended, messages);
  if (!status.ok()) return status;
  if (announced.freeze && !announced.current.end) messages.emplace_back(*announced.freeze);
  return messages;
}

std::vector<protocol::Uncalled> uncalled_by(const Announced& announced, const Resume& resume) {
  const bool here = resume.epoch == announced.current.epoch;
  const bool begins_anew = announced.start.generation == announced.start.epoch;
  if (!here && begins_anew) return {};  // the numbers of operations begin anew, too
  std::vector<protocol::Uncalled> uncalled = resume.uncalled;
  std::set<OpKey> called;
  for (const protocol::OpReport& op : resume.ops) called.insert(op.op);
  const auto add_missed = [&](const VerdictLog& log, uint64_t seen) {
    uint64_t index = log.stable_index();
    for (const protocol::Verdict& verdict : log.kept()) {
      const bool aborted = verdict.outcome == protocol::Outcome::kAborted;
      if (index++ >= seen && aborted && !called.contains(verdict.op))
        uncalled.push_back({verdict.op, verdict.sender, verdict.receiver});
    }
  };
  if (resume.epoch == announced.previous.epoch)
    add_missed(announced.previous.verdicts, resume.verdict_index);
  add_missed(announced.current.verdicts, here ? resume.verdict_index : 0);
  return uncalled;
}

}  // namespace pccl::master
