#include "master/members/last_call.h"

#include <algorithm>

#include "master/text_format.h"

namespace pccl::master {
namespace {

std::string text_of(const LastCall::Operation& call) {
  protocol::OpInfo info;
  info.tag = call.tag;
  return std::string(protocol::text(call.kind)) + " " + protocol::text(info, call.key);
}
std::string text_of(protocol::JointKind call) { return protocol::text(call); }

}  // namespace

LastCall last_call(PeerId peer, OpKey key, const protocol::OpInfo& info, Instant now) {
  const bool receives = info.kind == protocol::OpKind::kSend && info.receiver == peer;
  return {LastCall::Operation{key, receives ? protocol::OpKind::kRecv : info.kind, info.tag}, now};
}

void LastCall::end(Code outcome, Instant now) {
  ended = now;
  gave_up = outcome == Code::kOperationTimeout;
}

bool gave_up_lately(const LastCall& last, Instant now) {
  return last.gave_up && now - last.ended < last.ended - last.at;
}

std::string last_call_text(const LastCall& last, Situation situation, Instant now) {
  if (!situation.connected) return "has lost its connection to the master";
  struct Clause {
    const LastCall& last;
    bool waits;
    Instant now;
    std::string since = text(now - (waits ? last.at : std::max(last.at, last.ended)));
    std::string operator()(const LastCall::Unknown&) const {
      return "has not called anything since the master was started again";
    }
    std::string operator()(const LastCall::Nothing&) const {
      return "has not called anything since it was admitted, " + since + " ago";
    }
    std::string operator()(const LastCall::Operation& call) const { return of(text_of(call)); }
    std::string operator()(protocol::JointKind call) const { return of(text_of(call)); }
    std::string operator()(const LastCall::AnySend&) const {
      return waits ? "waits for a send from any rank" : of("recv from any rank");
    }
    std::string of(const std::string& call) const {
      if (waits) return "has been in " + call + " for " + since;
      if (gave_up_lately(last, now)) {
        return "was in " + call + " for " + text(last.ended - last.at) + " and gave it up " +
               since + " ago";
      }
      return "has not called anything for " + since + ", since " + call;
    }
  };
  return std::visit(Clause{last, situation.waits, now}, last.call);
}

}  // namespace pccl::master
