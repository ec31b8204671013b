#include "csrc/peer/outbox.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "csrc/base/assert.h"

namespace pccl::peer {
namespace {

bool may_wait(const protocol::Message& message) {
  const auto* begin = std::get_if<protocol::Begin>(&message);
  return begin != nullptr && begin->info.kind != protocol::OpKind::kSend;
}

}  // namespace

void Outbox::add(protocol::Message message, Instant now) {
  const Instant leaves = may_wait(message) ? now + kHeldMax : now;
  leaves_ = leaves_ ? std::min(*leaves_, leaves) : leaves;
  messages_.push_back(std::move(message));
}

std::vector<protocol::Message> Outbox::take() {
  leaves_.reset();
  return std::exchange(messages_, {});
}

void Outbox::check() const { PCCL_ASSERT(leaves_.has_value() == !messages_.empty()); }

}  // namespace pccl::peer
