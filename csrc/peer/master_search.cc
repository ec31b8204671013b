#include "csrc/peer/master_search.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::peer {

namespace {

// If all attempts of this time are refused, a hosted master counts as ended. The port of a master
// that has ended refuses every attempt from then on. The port of a restarted proxy or container
// refuses only for a moment, until it listens.
constexpr Duration kRefusedTime = std::chrono::milliseconds(300);

}  // namespace

void MasterSearch::begin(const std::string& why, bool planned, bool refused) {
  failed(why);
  const bool reported = since_ && !planned_;
  if (!since_) since_ = context_.now;
  if (refused && !refused_first_) refused_first_ = context_.now;
  if (!refused) refused_first_.reset();
  refused_last_ = refused_first_ ? std::optional(context_.now) : std::nullopt;
  planned_ = planned && !reported;
  if (planned || reported) return;
  context_.note(
      LogLevel::kWarning, LogEvent::kMasterLost,
      "connection to the " + context_.master() + " broke: " + why + "; trying again for " +
          text(limit()) +
          (context_.options.hosted ? ". It is in the process of rank 0: if that process has ended, "
                                     "the run is over"
                                   : ""));
}

Duration MasterSearch::limit() const {
  const Options& options = context_.options;
  return options.hosted ? std::min(options.master_timeout, context_.settings.peer_timeout)
                        : options.master_timeout;
}

void MasterSearch::found() {
  PCCL_ASSERT(since_);
  if (!planned_) {
    context_.note(LogLevel::kWarning, LogEvent::kReconnected,
                  "the " + context_.master() + " is back after " + text(context_.now - *since_));
  }
  since_.reset();
  refused_first_.reset();
  refused_last_.reset();
  planned_ = false;
}

void MasterSearch::give_up(const Status& reason) {
  if (since_)
    context_.note(LogLevel::kWarning, LogEvent::kMasterGone,
                  "the search for the master is over: " + reason.message);
}

Status MasterSearch::over() const {
  if (!since_) return {};
  const bool refused = refused_first_ && *refused_last_ - *refused_first_ >= kRefusedTime;
  if (context_.options.hosted && refused) return lost(context_.now - *since_);
  return context_.now - *since_ < limit() ? Status{} : lost(limit());
}

Status MasterSearch::lost(Duration after) const {
  const Options& options = context_.options;
  const char* advice =
      options.rendezvous ? "The master was in the process of rank 0: reconfigure without it"
      : options.hosted   ? "The master was in the process of rank 0: start the whole run again"
                         : "Join again when the master is back";
  return {Code::kMasterLost,
          "no " + context_.master() + " for " + text(after) + " (" + why_ +
              "); the tensors of unfinished operations are as before. " + advice,
          {}};
}

std::optional<Instant> MasterSearch::deadline() const {
  if (!since_) return std::nullopt;
  return *since_ + limit();
}

void MasterSearch::check() const {
  PCCL_ASSERT(!since_ || *since_ <= context_.now);
  PCCL_ASSERT(!planned_ || since_);
  PCCL_ASSERT(deadline().has_value() == under_way());
  PCCL_ASSERT(refused_first_.has_value() == refused_last_.has_value());
  PCCL_ASSERT(!refused_first_ || (since_ && *since_ <= *refused_first_));
}

}  // namespace pccl::peer
