#include "master/members/links.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/frames.h"
#include "csrc/protocol/limits.h"

namespace pccl::master {
namespace {

// Rates that differ by a quarter (1 / kNoiseDivisor) or less are averaged, because traffic and
// probes measure a path only roughly.
constexpr uint64_t kNoiseDivisor = 4;

Links::View::State state_of(protocol::LinkState state) {
  switch (state) {
    case protocol::LinkState::kUp: return Links::View::State::kUp;
    case protocol::LinkState::kDown: return Links::View::State::kDown;
    case protocol::LinkState::kUnreachable: return Links::View::State::kUnreachable;
  }
  return Links::View::State::kUnknown;
}

}  // namespace

void Links::add(PeerId a, PeerId b) {
  const bool fresh = links_.try_emplace(pair(a, b)).second;
  PCCL_ASSERT(fresh && a != b);
}

void Links::forget(PeerId peer) {
  std::erase_if(links_, [this, peer](const auto& at) {
    const bool ends_here = at.first.first == peer || at.first.second == peer;
    if (!ends_here || !at.second.up()) return ends_here;
    PCCL_ASSERT(up_count_ > 0);
    --up_count_;
    return ends_here;
  });
}

// A repeated Dial does not begin the time anew.
void Links::dialled(PeerId from, PeerId to, Disclosure disclosure) {
  const auto at = links_.find(pair(from, to));
  if (at == links_.end()) return;
  View& view = from < to ? at->second.by_lower : at->second.by_higher;
  if (view.disclosure == disclosure) return;
  view.disclosure = disclosure;
  view.tried_ticks = 0;
}

Links::News Links::report(PeerId from, const protocol::LinkReport& report) {
  const auto at = links_.find(pair(from, report.peer));
  if (at == links_.end()) return News::kNone;
  Views& link = at->second;
  const uint32_t last = std::max(link.made, link.dead);
  if (report.serial > last && report.serial - last > protocol::kSerialStepMax) return News::kNone;
  if (report.serial > protocol::kSerialMax) return News::kNone;
  if (report.serial < link.made) {
    const bool lost = report.state == protocol::LinkState::kDown;
    return lost && std::exchange(link.may_be_old, false) ? News::kMade : News::kNone;
  }
  const bool was_up = link.up();
  switch (report.state) {
    case protocol::LinkState::kUp:
      if (report.serial <= last) return News::kNone;
      link.made = report.serial;
      link.rtt = report.rtt;
      link.by_lower = link.by_higher = {};
      link.down_ticks = 0;
      break;
    case protocol::LinkState::kDown:
    case protocol::LinkState::kUnreachable: link.dead = std::max(link.dead, report.serial); break;
  }
  View& view = from < report.peer ? link.by_lower : link.by_higher;
  view.state = state_of(report.state);
  view.text = report.text;
  view.fault = report.fault;
  if (link.up() != was_up) was_up ? --up_count_ : ++up_count_;
  PCCL_ASSERT(up_count_ <= links_.size() && link.up() == !link.down());
  const bool first = !std::exchange(link.known, true);
  link.may_be_old = first && link.up();
  if (!link.up()) return News::kDead;
  return first ? News::kNone : News::kMade;
}

bool Links::linked(PeerId a, PeerId b) const {
  const auto at = links_.find(pair(a, b));
  return at != links_.end() && at->second.up();
}

uint32_t Links::rtt(PeerId a, PeerId b) const {
  const auto at = links_.find(pair(a, b));
  return at == links_.end() ? 0 : at->second.rtt;
}

// The report may still name a peer that has just gone.
Status Links::measured(PeerId from, const protocol::LinkRates& rates) {
  for (const auto& [to, rate] : rates.links) {
    if (to == from || rate == 0)
      return violation("LinkRates with " + std::to_string(rate) + " bytes per second from peer " +
                       text(from) + " to peer " + text(to));
  }
  for (const auto& [to, rate] : rates.links) {
    const auto at = links_.find(pair(from, to));
    if (at == links_.end()) continue;
    speed_of(at->second, from, to).note(rate);
  }
  return {};
}

void Links::Speed::note(uint64_t measured) {
  const uint64_t difference = std::max(rate, measured) - std::min(rate, measured);
  rate = difference <= rate / kNoiseDivisor ? std::midpoint(rate, measured) : measured;
}

void Links::probed(PeerId from, PeerId to, const Probe& probe) {
  PCCL_ASSERT(from != to && probe.rate > 0);
  const auto at = links_.find(pair(from, to));
  if (at == links_.end()) return;
  Speed& speed = speed_of(at->second, from, to);
  speed.note(probe.rate);
  speed.probe = probe;
}

void Links::probed_again(PeerId from, PeerId to, uint64_t rate) {
  PCCL_ASSERT(from != to);
  const auto at = links_.find(pair(from, to));
  if (at == links_.end()) return;
  Speed& speed = speed_of(at->second, from, to);
  speed.rate = std::max(speed.rate, rate);
}

Links::Speed Links::speed(PeerId from, PeerId to) const {
  const auto at = links_.find(pair(from, to));
  if (at == links_.end()) return {};
  return from < to ? at->second.of_lower : at->second.of_higher;
}

Links::Probe Links::probe(PeerId from, PeerId to) const { return speed(from, to).probe; }

uint64_t Links::rate(PeerId from, PeerId to) const { return speed(from, to).rate; }

uint32_t Links::dead_serial(PeerId a, PeerId b) const {
  const auto at = links_.find(pair(a, b));
  return at == links_.end() ? 0 : at->second.dead;
}

bool Links::dials(PeerId from, PeerId to) const {
  PCCL_ASSERT(from != to);
  const auto at = links_.find(pair(from, to));
  if (at == links_.end()) return from < to;
  const Views& link = at->second;
  const uint32_t last = std::max(link.made, link.dead);
  const bool first = protocol::made_by_higher(last) == (from > to);
  return first || view(to, from).shows_failure();
}

const Links::View& Links::view(PeerId from, PeerId to) const {
  static const View kNone;
  const auto at = links_.find(pair(from, to));
  if (at == links_.end()) return kNone;
  return from < to ? at->second.by_lower : at->second.by_higher;
}

int Links::down_ticks(PeerId a, PeerId b) const {
  const auto at = links_.find(pair(a, b));
  return at == links_.end() ? 0 : at->second.down_ticks;
}

void Links::tick(const std::function<bool(PeerId, PeerId)>& counts) {
  for (auto& [pair, link] : links_) {
    for (View* view : {&link.by_lower, &link.by_higher}) {
      if (view->disclosure == Disclosure::kFailure) ++view->tried_ticks;
    }
    if (link.down() && counts(pair.first, pair.second)) ++link.down_ticks;
  }
}

// The ticks of a link since it went down. If a side does not disclose the faults, these are the
// ticks since its failure is shown, so that the number does not depend on the fault.
int Links::ticks_shown(const Views& link) {
  int ticks = link.down_ticks;
  for (const View* view : {&link.by_lower, &link.by_higher}) {
    if (view->disclosure == Disclosure::kFailure)
      ticks = std::min(ticks, view->tried_ticks - kTriedTicks);
  }
  return ticks;
}

std::vector<Links::Dead> Links::dead(int ticks) const {
  std::vector<Dead> dead;
  for (const auto& [pair, link] : links_) {
    if (link.down_ticks < ticks || !link.down()) continue;
    // If a path carries only small packets, only the side that gives it up knows the reason. The
    // other side sees only that the link was closed. So the text of the first side is used.
    const bool higher = link.by_higher.fault == LinkFault::kOnlySmallPackets;
    const View& view = link.by_lower.dead() && !higher ? link.by_lower : link.by_higher;
    const bool both = link.by_lower.shows_failure() && link.by_higher.shows_failure();
    dead.push_back({pair.first, pair.second, view.text, both, ticks_shown(link)});
  }
  return dead;
}

size_t Links::dead_count(PeerId peer, const std::vector<PeerId>& others) const {
  size_t count = 0;
  for (const PeerId other : others) {
    const auto at = links_.find(pair(peer, other));
    if (at != links_.end() && at->second.down()) ++count;
  }
  return count;
}

void Links::check() const {
  size_t up = 0;
  for (const auto& [pair, link] : links_) {
    PCCL_ASSERT(pair.first < pair.second);
    if (link.up()) ++up;
    const bool reported_up =
        link.by_lower.state == View::State::kUp || link.by_higher.state == View::State::kUp;
    PCCL_ASSERT(!link.up() || (reported_up && !link.down()));
    PCCL_ASSERT(link.down_ticks == 0 || link.down());
    for (const View* view : {&link.by_lower, &link.by_higher})
      PCCL_ASSERT(view->tried_ticks == 0 || view->disclosure == Disclosure::kFailure);
    PCCL_ASSERT(link.known || (link.made == 0 && link.dead == 0 && !link.down()));
  }
  PCCL_ASSERT(up == up_count_);
}

}  // namespace pccl::master
