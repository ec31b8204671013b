#include "master/group/dialling.h"

#include <utility>

#include "csrc/base/assert.h"
#include "master/members/connections.h"

namespace pccl::master {

void Dialling::link(PeerId a, PeerId b) { membership_.links.dials(a, b) ? dial(a, b) : dial(b, a); }

void Dialling::dial(PeerId dialler, PeerId target) {
  membership_.links.dialled(dialler, target, membership_.disclosure(dialler, target));
  protocol::Dial dial = membership_.dial(dialler, target);
  dial.credential = context_.credential(dialler, target);
  connections_.send(dialler, std::move(dial));
}

Links::News Dialling::on(PeerId from, const protocol::LinkReport& report) {
  PCCL_ASSERT(report.peer != from);
  const PeerId other = report.peer;
  Links& links = membership_.links;
  const std::string text_before = links.view(from, other).text;
  const uint32_t dead_before = links.dead_serial(from, other);
  const bool was_trying = links.view(from, other).unreachable();
  const bool was_dialling = links.dials(from, other);
  const Links::News news = links.report(from, report);
  if (news != Links::News::kDead) return news;
  if (report.state == protocol::LinkState::kUnreachable) {
    if (report.text != text_before) log_unreachable(from, report);
    if (!links.view(other, from).unreachable() && links.view(from, other).shows_failure())
      dial(other, from);  // otherwise tick() does this
    // `from` made the last connection, and began to dial again before this master was restarted.
    // The other end may not know the key of a credential from that time, so `from` gets a new one.
    if (!was_dialling && links.dials(from, other)) dial(from, other);
  } else if (links.dead_serial(from, other) > dead_before) {
    link(from, other);
  } else if (was_trying && links.dials(from, other)) {
    // The reports arrived in the other order: `other` has reported the end of the link while `from`
    // still seemed to dial. But `from` has had a link since then and has stopped dialling, so it
    // gets a new Dial now.
    dial(from, other);
  }
  return news;
}

// The log has the whole text. The other peer receives at most the kind of fault.
void Dialling::log_unreachable(PeerId from, const protocol::LinkReport& report) {
  const std::string line = membership_.describe(from) + " cannot reach " +
                           membership_.describe(report.peer) + ": " + report.text;
  const bool open = membership_.links.view(from, report.peer).disclosure == Disclosure::kFull;
  context_.log_withheld(LogLevel::kInfo, {LogEvent::kUnreachable, {}, membership_.name(from)}, line,
                        open ? line : "");
}

void Dialling::tick() {
  const Links& links = membership_.links;
  for (const PeerId peer : membership_.waiting()) {
    for (const auto& [other, about] : membership_.peers()) {
      if (other == peer) continue;
      const Links::View& view = links.view(other, peer);
      const bool due = view.disclosure == Disclosure::kFailure && view.unreachable() &&
                       view.tried_ticks == Links::kTriedTicks;
      if (due && !links.view(peer, other).unreachable()) dial(peer, other);
    }
  }
}

void Dialling::repeat(PeerId peer, const std::set<PeerId>& needed) {
  for (const Membership::Gone& gone : membership_.gone()) {
    if (!needed.contains(gone.peer)) connections_.send(peer, protocol::Forget{gone.peer});
  }
  if (membership_.find(peer)->order == 0) return;  // not registered yet: it has no links
  for (const auto& [other, about] : membership_.peers()) {
    if (other == peer || about.order == 0 || membership_.links.linked(peer, other)) continue;
    if (membership_.links.dials(peer, other)) dial(peer, other);
  }
}

void Dialling::forget(PeerId gone) {
  PCCL_ASSERT(membership_.find(gone) == nullptr);
  for (const auto& [other, about] : membership_.peers()) {
    if (about.order != 0) connections_.send(other, protocol::Forget{gone});
  }
}

}  // namespace pccl::master
