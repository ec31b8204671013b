#include "csrc/peer/verdict_log.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::peer {
namespace {

// All texts of the verdicts in one Resume have at most this many bytes together. Further texts are
// left out.
constexpr size_t kTextBytesMax = protocol::kMessageBytesMax / 16;

}  // namespace

Status VerdictLog::check(const protocol::Verdicts& verdicts) const {
  if (verdicts.first_index == seen_) return {};
  return violation("verdicts from #" + std::to_string(verdicts.first_index) + " after " +
                   std::to_string(seen_));
}

void VerdictLog::add(const protocol::Verdict& verdict) {
  PCCL_ASSERT((verdict.outcome == protocol::Outcome::kCommitted) == (verdict.code == Code::kOk));
  ++seen_;
  kept_.push_back(verdict);
  const size_t most = std::min<size_t>(verdict.unacknowledged, protocol::kOpsOpenMax - 1);
  while (kept_.size() > most + 1) kept_.pop_front();
}

bool VerdictLog::keep_early(const protocol::Verdict& verdict) {
  PCCL_ASSERT(verdict.outcome != protocol::Outcome::kCommitted);
  if (early_.size() >= protocol::kOpsOpenMax) return false;
  early_.emplace(verdict.op, verdict);
  return true;
}

std::optional<protocol::Verdict> VerdictLog::take_early(OpKey op) {
  const auto at = early_.find(op);
  if (at == early_.end()) return std::nullopt;
  protocol::Verdict verdict = std::move(at->second);
  early_.erase(at);
  return verdict;
}

void VerdictLog::describe(protocol::Resume& resume) const {
  resume.verdict_index = seen_;
  resume.stable_index = seen_ - kept_.size();
  resume.verdicts.assign(kept_.begin(), kept_.end());
  PCCL_ASSERT(resume.verdicts.size() == resume.verdict_index - resume.stable_index);
  size_t bytes = 0;
  for (protocol::Verdict& verdict : resume.verdicts) {
    bytes += verdict.text.size();
    if (bytes > kTextBytesMax) verdict.text.clear();
  }
  resume.uncalled.clear();
  for (const auto& [op, verdict] : early_)
    resume.uncalled.push_back({op, verdict.sender, verdict.receiver});
}

void VerdictLog::begin_epoch() {
  seen_ = 0;
  kept_.clear();
}

void VerdictLog::begin_generation() { *this = {}; }

void VerdictLog::check() const {
  PCCL_ASSERT(kept_.size() <= seen_ && kept_.size() <= protocol::kOpsOpenMax);
  PCCL_ASSERT(kept_.empty() == (seen_ == 0));
  PCCL_ASSERT(early_.size() <= protocol::kOpsOpenMax);
  for (const auto& [op, verdict] : early_) {
    PCCL_ASSERT(verdict.op == op);
    PCCL_ASSERT(verdict.outcome != protocol::Outcome::kCommitted && verdict.code != Code::kOk);
  }
}

}  // namespace pccl::peer
