#include "master/last_call.h"

#include <algorithm>

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

std::string last_call_text(const LastCall& last, Situation situation, Instant now) {
  if (!situation.connected) return "which has lost its connection to the master";
  const std::string since = text(now - (situation.waits ? last.at : std::max(last.at, last.ended)));
  struct Clause {
    const std::string& since;
    bool waits;
    std::string operator()(const LastCall::Unknown&) const {
      return "which has not called anything since the master was started again";
    }
    std::string operator()(const LastCall::Nothing&) const {
      return "which has not called anything since it was admitted, " + since + " ago";
    }
    std::string operator()(const LastCall::Operation& call) const { return of(text_of(call)); }
    std::string operator()(protocol::JointKind call) const { return of(text_of(call)); }
    std::string of(const std::string& call) const {
      return waits ? "which has been in " + call + " for " + since
                   : "which has not called anything for " + since + ", since " + call;
    }
  };
  return std::visit(Clause{since, situation.waits}, last.call);
}

}  // namespace pccl::master
