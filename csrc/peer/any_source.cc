#include "csrc/peer/any_source.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/protocol/limits.h"

namespace pccl::peer {

std::string any_source_name(const OpRequest& request) {
  return "recv(" + std::string(text(request.dtype)) + ", " + count_text(request.count, "element") +
         ", from any rank)" + (request.tag.empty() ? "" : " (" + request.tag + ")");
}

Status AnySource::check_room(const OpRequest& request) const {
  if (tags_.contains(request.tag) || tags_.size() < protocol::kAwaitedTagsMax) return {};
  return {Code::kInvalidState,
          "receives from any source wait under " + std::to_string(tags_.size()) +
              " tags, the most there can be: wait for some of them, or use fewer tags",
          {}};
}

void AnySource::call(const OpRequest& request, bool held) {
  PCCL_ASSERT(request.kind == protocol::OpKind::kRecv && request.root == kAnySource);
  PCCL_ASSERT(receives_.empty() || receives_.rbegin()->first < request.handle);
  const Epoch members = membership_.seen().since();
  if (Status status = held ? Status{} : over(request, members); !status.ok())
    return context_.emit(FinishOp{request.handle, std::move(status), {}, {}, {}});
  tag_bytes_ += request.tag.size();
  Tag& tag = tags_[request.tag];
  tag.receives.insert(request.handle);
  if (held) ++tag.held;
  Receive& receive = receives_[request.handle];
  receive.request = request;
  receive.members = members;
  receive.held = held;
  if (!held) start(receive);
}

void AnySource::start(Receive& receive) {
  const OpRequest& request = receive.request;
  if (request.timeout > Duration{0}) {
    receive.deadline = context_.after(request.timeout);
    deadlines_.emplace(*receive.deadline, request.handle);
  }
  Tag& tag = tags_.at(request.tag);
  if (tag.asked == 0) ask(request.tag, tag);
}

void AnySource::open_posting() {
  end_if([this](const Receive& receive) { return over(receive.request, receive.members); });
  for (auto& [handle, receive] : receives_) {
    if (!std::exchange(receive.held, false)) continue;
    --tags_.at(receive.request.tag).held;
    start(receive);
  }
}

bool AnySource::staged(Handle handle, const Status& status) {
  const auto at = receives_.find(handle);
  if (at == receives_.end()) return false;
  at->second.request.parked = false;
  at->second.unfit = status;
  return true;
}

// Asks nothing while the epoch ends: no send can be taken in it any more.
void AnySource::ask(const std::string& name, Tag& tag) {
  PCCL_ASSERT(tag.held <= tag.receives.size());
  if (membership_.frozen()) return;
  const size_t waiting = tag.receives.size() - tag.held;
  tag.asked = static_cast<uint32_t>(std::min<size_t>(waiting, protocol::kAwaitedSendsMax));
  context_.send(protocol::AwaitSend{membership_.epoch(), name, tag.asked});
}

bool AnySource::waits(const std::string& name) const {
  const auto at = tags_.find(name);
  return at != tags_.end() && at->second.receives.size() > at->second.held;
}

AnySource::Receive AnySource::take(const std::string& name) {
  PCCL_ASSERT(waits(name));
  const Handle handle = *tags_.at(name).receives.begin();
  PCCL_ASSERT(!receives_.at(handle).held);
  return remove(handle);
}

// Keeps the tag, even if it has no receive left: an answer of the master may be on its way. The
// caller removes such a tag.
AnySource::Receive AnySource::remove(Handle handle) {
  const auto at = receives_.find(handle);
  Receive receive = std::move(at->second);
  receives_.erase(at);
  if (receive.deadline) deadlines_.erase({*receive.deadline, handle});
  const std::string& name = receive.request.tag;
  tag_bytes_ -= name.size();
  Tag& tag = tags_.at(name);
  tag.receives.erase(handle);
  if (receive.held) --tag.held;
  return receive;
}

void AnySource::answered(const std::string& name) {
  const auto at = tags_.find(name);
  if (at == tags_.end()) return;
  Tag& tag = at->second;
  if (tag.asked > 0) --tag.asked;
  if (waits(name) ? tag.asked == 0 : tag.asked > 0) ask(name, tag);
  if (tag.receives.empty()) tags_.erase(at);
}

void AnySource::ask_again() {
  for (auto& [name, tag] : tags_) {
    tag.asked = 0;
    if (waits(name)) ask(name, tag);
  }
}

Status AnySource::check(const protocol::SendBegun& answer) const {
  const PeerId sender = answer.sender;
  const bool fits = !sender || (sender != membership_.self() && membership_.rank_of(sender));
  if (fits && answer.epoch == membership_.epoch() && !membership_.ended()) return {};
  return violation("SendBegun " + (sender ? "of " + pccl::text(sender) : "without a sender") +
                   " in epoch " + text(answer.epoch));
}

void AnySource::no_sender(const std::string& tag) {
  end_if([&](const Receive& receive) -> Status {
    if (receive.held || receive.request.tag != tag) return {};
    return {Code::kPeerLost,
            any_source_name(receive.request) +
                ": every other rank has left the group (destroy_process_group) or waits for "
                "update_topology, so no send can come",
            {}};
  });
}

// If the members have changed, the receive fails: its sender may be among the members that have
// left.
Status AnySource::over(const OpRequest& request, Epoch members) const {
  const Status& broken = membership_.broken();
  const std::string name = any_source_name(request);
  if (!broken.ok()) return {broken.code, name + ": " + broken.message, broken.peer};
  if (members == membership_.members_since()) return {};
  return {Code::kMembershipChanged,
          name +
              ": the membership has changed since it was called, and it had found no send: look at "
              "the new ranks and call it again",
          {}};
}

void AnySource::end_changed() {
  end_if([this](const Receive& receive) {
    return receive.held ? Status{} : over(receive.request, receive.members);
  });
}

void AnySource::end(const Status& why) {
  end_if([&why](const Receive& receive) {
    return Status{why.code, any_source_name(receive.request) + ": " + why.message, why.peer};
  });
}

void AnySource::end_if(const std::function<Status(const Receive&)>& over) {
  std::vector<std::pair<Handle, Status>> ended;
  for (const auto& [handle, receive] : receives_) {
    const Status status = over(receive);
    if (!status.ok()) ended.emplace_back(handle, status);
  }
  for (const auto& [handle, status] : ended) {
    remove(handle);
    context_.emit(FinishOp{handle, status, {}, {}, {}});
  }
  std::erase_if(tags_, [](const auto& tag) { return tag.second.receives.empty(); });
  // If only held receives are left under a tag, its earlier questions are void.
  for (auto& [name, tag] : tags_) {
    if (!waits(name)) tag.asked = 0;
  }
}

void AnySource::on_time() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= context_.now) {
    const Receive receive = remove(deadlines_.begin()->second);
    const OpRequest& request = receive.request;
    const std::string& name = request.tag;
    context_.emit(FinishOp{request.handle,
                           {Code::kOperationTimeout,
                            any_source_name(request) + " timed out after " + text(request.timeout) +
                                " on rank " + std::to_string(membership_.topology().rank) +
                                ": no rank had begun a send to it under this tag",
                            {}},
                           {},
                           {},
                           {}});
    Tag& tag = tags_.at(name);
    // Asks for 0 sends, so that the master forgets the question.
    if (!waits(name) && tag.asked > 0) ask(name, tag);
    if (tag.receives.empty()) tags_.erase(name);
  }
}

std::optional<Instant> AnySource::deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

void AnySource::check() const {
  size_t receives = 0, bytes = 0, deadlines = 0;
  for (const auto& [name, tag] : tags_) {
    PCCL_ASSERT(!tag.receives.empty() && tag.asked <= protocol::kAwaitedSendsMax);
    size_t held = 0;
    for (const Handle handle : tag.receives) {
      const Receive& receive = receives_.at(handle);
      PCCL_ASSERT(receive.request.tag == name && receive.request.handle == handle);
      PCCL_ASSERT(held == 0 || receive.held);  // held receives are the youngest
      if (receive.held) ++held;
      if (receive.deadline) ++deadlines;
      bytes += name.size();
      ++receives;
    }
    PCCL_ASSERT(held == tag.held);
    PCCL_ASSERT(!waits(name) || tag.asked > 0 || membership_.frozen());
  }
  PCCL_ASSERT(receives == receives_.size() && bytes == tag_bytes_);
  PCCL_ASSERT(deadlines == deadlines_.size() && tags_.size() <= protocol::kAwaitedTagsMax);
}

}  // namespace pccl::peer
