#include "csrc/peer/master_search.h"

#include "csrc/base/assert.h"

namespace pccl::peer {

void MasterSearch::begin(const std::string& why, bool planned) {
  failed(why);
  const bool reported = since_ && !planned_;
  if (!since_) since_ = context_.now;
  planned_ = planned && !reported;
  if (planned || reported) return;
  context_.note(
      LogLevel::kWarning,
      "connection to the " + context_.master() + " broke: " + why + "; trying again for " +
          text(context_.options.master_timeout) +
          (context_.options.hosted ? ". It is in the process of rank 0: if that process has ended, "
                                     "the run is over"
                                   : ""));
}

void MasterSearch::found() {
  PCCL_ASSERT(since_);
  if (!planned_) {
    context_.note(LogLevel::kWarning,
                  "the " + context_.master() + " is back after " + text(context_.now - *since_));
  }
  since_.reset();
  planned_ = false;
}

void MasterSearch::give_up(const Status& reason) {
  if (since_)
    context_.note(LogLevel::kWarning, "the search for the master is over: " + reason.message);
}

Status MasterSearch::on_time() const {
  if (!since_ || context_.now - *since_ < context_.options.master_timeout) return {};
  return {Code::kMasterLost,
          "no " + context_.master() + " for " + text(context_.options.master_timeout) + " (" +
              why_ + "); the tensors of unfinished operations are as before. " +
              (context_.options.hosted
                   ? "The master was in the process of rank 0: start the whole run again"
                   : "Join again when the master is back"),
          {}};
}

std::optional<Instant> MasterSearch::deadline() const {
  if (!since_) return std::nullopt;
  return *since_ + context_.options.master_timeout;
}

void MasterSearch::check() const {
  PCCL_ASSERT(!since_ || *since_ <= context_.now);
  PCCL_ASSERT(!planned_ || since_);
  PCCL_ASSERT(deadline().has_value() == under_way());
}

}  // namespace pccl::peer
