// The part of Operations for a receive from any source: its call, the send that it finds, and its
// failure if its epoch or its generation is over.

#include "csrc/peer/operation.h"
#include "csrc/peer/request.h"

namespace pccl::peer {

using protocol::OpKind;

void Operations::call_any_source(const OpRequest& request) {
  const Epoch members = membership_.seen_since();
  const Status over = closed_ ? Status{} : any_source_over(request, members);
  if (over.ok()) return any_source_.call(request, members, closed_);
  context_.emit(FinishOp{request.handle, over, {}, {}, {}});
}

// The expected sender of a receive may be among the members that have left.
Status Operations::any_source_over(const OpRequest& request, Epoch members) const {
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

void Operations::end_any_source() {
  any_source_.end([this](const AnySource::Receive& receive) {
    const bool held = closed_ && receive.held;
    return held ? Status{} : any_source_over(receive.request, receive.members);
  });
}

bool Operations::end_early(OpKey key, const protocol::OpInfo& info) {
  if (!verdicts_.take_early(key)) return false;
  context_.send(protocol::Begin{membership_.epoch(), key, info});
  context_.emit(EndOp{key});
  return true;
}

// A receive that names its source may have taken this send meanwhile. Sends that have ended before
// are passed over: no sender waits for them any more. If an older send of this peer is open, it is
// taken instead.
Status Operations::on_send_begun(const protocol::SendBegun& send) {
  if (!send.sender) return on_no_sender(send);
  const bool named = send.sender != membership_.self() && membership_.rank_of(send.sender);
  if (send.epoch != membership_.epoch() || membership_.ended() || !named)
    return violation("SendBegun of " + pccl::text(send.sender) + " in epoch " + text(send.epoch));
  if (membership_.frozen()) return {};  // asked again in the next epoch
  protocol::OpInfo info;
  info.kind = OpKind::kSend;
  info.root = send.sender;
  info.receiver = membership_.self();
  info.tag = send.tag;
  info.world_size = membership_.world_size();
  const TagId tag = tag_of(info);
  if (any_source_.waits(send.tag)) {
    uint32_t& next = next_[tag];
    while (next <= send.sequence && end_early({tag, next}, info)) ++next;
    if (next <= send.sequence) {
      AnySource::Receive receive = any_source_.take(send.tag);
      info.dtype = receive.request.dtype;
      info.count = receive.request.count;
      tag_bytes_ += protocol::carried_bytes(info);
      post({receive.request.handle, info, receive.request.timeout, membership_.seen_since(),
            receive.request.parked, receive.unfit, receive.deadline});
    }
  }
  any_source_.answered(send.tag);
  return {};
}

// Every other member of the fixed world has left, and none of their sends is open any more.
Status Operations::on_no_sender(const protocol::SendBegun& answer) {
  if (answer.epoch != membership_.epoch() || membership_.ended())
    return violation("SendBegun without a sender in epoch " + text(answer.epoch));
  any_source_.end([&](const AnySource::Receive& receive) -> Status {
    if (receive.held || receive.request.tag != answer.tag) return {};
    return {
        Code::kPeerLost,
        any_source_name(receive.request) +
            ": every other rank has left the group (destroy_process_group), so no send can come",
        {}};
  });
  return {};
}

}  // namespace pccl::peer
