#include "csrc/link/redial.h"

#include <utility>

#include "csrc/base/assert.h"

namespace pccl::link {
namespace {

// The time in which a private address is tried alone. One that really is close by answers within
// it.
constexpr Duration kAttemptDelay = std::chrono::milliseconds(250);

}  // namespace

void Redial::begin_pass(std::vector<Endpoint> addresses, const std::optional<Endpoint>& reached,
                        Instant now) {
  PCCL_ASSERT(attempts_.empty() && !addresses.empty());
  addresses_ = std::move(addresses);
  order_ = addresses_;
  const auto known = reached ? std::find(order_.begin(), order_.end(), *reached) : order_.end();
  knows_first_ = known != order_.end();
  if (knows_first_) std::rotate(order_.begin(), known, known + 1);
  begun_ = 0;
  why_.clear();
  fault_ = LinkFault::kOther;
  next_pass_.reset();
  const bool inner = is_private(order_[0].host);
  const Duration alone = knows_first_ ? connect_timeout() / 2
                         : inner      ? kAttemptDelay
                                      : connect_timeout();
  more_at_ = now + alone;
}

void Redial::give_up(const std::string& why, LinkFault fault) {
  PCCL_ASSERT(attempts_.empty());
  begun_ = order_.size();
  why_ = why;
  fault_ = fault;
}

bool Redial::may_attempt(Instant now) const {
  PCCL_ASSERT(has_more());
  const bool first_alone = begun_ == 1 && !attempts_.empty() && now < more_at_;
  const size_t most = kAttemptsMax + (tries_known() ? 1 : 0);
  return !first_alone && attempts_.size() < most;
}

// Whether the first address of this pass has worked before, and is being tried.
bool Redial::tries_known() const {
  return knows_first_ &&
         std::any_of(attempts_.begin(), attempts_.end(),
                     [this](const Attempt& attempt) { return attempt.at == order_[0]; });
}

Duration Redial::attempt(ConnectionId id) {
  PCCL_ASSERT(has_more() && !pauses());
  attempts_.push_back({id, order_[begun_++]});
  // All addresses together take no longer than a single one. An address that worked before has all
  // of that time: TCP sends a lost SYN again after 1 s and 3 s.
  const size_t further = order_.size() - 1;
  const auto parts = static_cast<int>(begun_ == 1 ? 1 : (further + 1) / kAttemptsMax);
  PCCL_ASSERT(parts > 0);
  const Duration whole = connect_timeout();
  const bool all_of_it = further == 0 || (begun_ == 1 && knows_first_);
  return all_of_it ? whole : whole / 2 / parts;
}

void Redial::failed(ConnectionId id, const std::string& why, LinkFault fault, bool connected) {
  const auto attempt = std::find_if(attempts_.begin(), attempts_.end(),
                                    [id](const Attempt& one) { return one.id == id; });
  PCCL_ASSERT(attempt != attempts_.end());
  why_ += (why_.empty() ? "" : "; ") + why;
  if (attempt->at == addresses_[0]) fault_ = fault;
  const bool known = knows_first_ && attempt->at == order_[0];
  attempts_.erase(attempt);
  const bool closed = known && connected && fault == LinkFault::kOther;
  if (!closed || closed_passes_ >= kClosedPassesMax) return;
  ++closed_passes_;
  begun_ = order_.size();
}

void Redial::drop(ConnectionId id) {
  std::erase_if(attempts_, [id](const Attempt& one) { return one.id == id; });
}

void Redial::pause(Instant now) {
  PCCL_ASSERT(attempts_.empty() && !has_more());
  next_pass_ = now + std::min(protocol::tick_of(peer_timeout_), kPauseMax);
}

std::optional<Instant> Redial::deadline() const {
  if (next_pass_) return next_pass_;
  const bool first_only = begun_ == 1 && has_more() && !attempts_.empty();
  return first_only ? std::optional(more_at_) : std::nullopt;
}

void Redial::check() const {
  PCCL_ASSERT(!addresses_.empty() && order_.size() == addresses_.size());
  PCCL_ASSERT(attempts_.size() <= kAttemptsMax + (tries_known() ? 1 : 0));
  PCCL_ASSERT(attempts_.size() <= begun_ && begun_ <= order_.size());
  PCCL_ASSERT(closed_passes_ <= kClosedPassesMax);
  PCCL_ASSERT(!pauses() || (attempts_.empty() && !has_more()));
}

}  // namespace pccl::link
