#include "master/operator/snapshot.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/protocol/version.h"
#include "master/context.h"
#include "master/diagnosis/diagnosis.h"
#include "master/epochs/operation_waits.h"
#include "master/group/awaited_calls.h"
#include "master/group/groups.h"
#include "master/group/ring_links.h"
#include "master/group/wait_texts.h"
#include "master/members/connections.h"
#include "master/members/telemetries.h"
#include "master/operator/course.h"
#include "master/run_view.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

using nlohmann::json;

std::string iso(const WallClock& clock, Instant at) {
  const auto ago = std::chrono::duration_cast<std::chrono::milliseconds>(clock.now - at);
  return iso_text(std::chrono::milliseconds(clock.unix_ms) - ago);
}

// Rounded to milliseconds.
double seconds(Duration time) {
  return static_cast<double>(time / std::chrono::milliseconds(1)) / 1e3;
}

void add_since(json& to, const WallClock& clock, Instant at) {
  to["since"] = iso(clock, at);
  to["since_s"] = seconds(clock.now - at);
}

const char* phase_of(const GroupView& view) {
  switch (view.epochs.phase()) {
    case Epochs::Phase::kFounding: return "founding";
    case Epochs::Phase::kActive: return "active";
    case Epochs::Phase::kDraining:
    case Epochs::Phase::kStarting: return "changing";
    case Epochs::Phase::kFreezing:
    case Epochs::Phase::kEnding: return "ending";
    case Epochs::Phase::kBroken: return "broken";
    case Epochs::Phase::kRecovering: return "recovering";
  }
  return "";
}

const char* state_of(const GroupView& view, PeerId peer, const Membership::Peer& about) {
  if (!about.connected) return "away";
  if (!view.connections.received_lately(peer, Connections::kSilentTicks)) return "silent";
  if (view.membership.is_member(peer)) return "member";
  return about.order == 0 ? "arriving" : "waiting";
}

// The time of the last change: of its call, or of the end of the call.
Instant since_of(const GroupView& view, PeerId member, const LastCall& last) {
  return view.is_in_last_call(member) ? last.at : std::max(last.at, last.ended);
}

json scalars_of(const protocol::Telemetry& telemetry) {
  json out = json::object();
  for (const protocol::Scalar& scalar : telemetry.scalars) out[scalar.name] = scalar.value;
  return out;
}

json links_of(const protocol::Telemetry& telemetry) {
  json out = json::array();
  for (const protocol::LinkTelemetry& link : telemetry.links) {
    out.push_back({{"peer", text(link.peer)},
                   {"bytes_sent", link.bytes_sent},
                   {"bytes_received", link.bytes_received},
                   {"lanes", link.lanes},
                   {"lanes_used", link.lanes_used},
                   {"round_trip_s", link.rtt_us > 0 ? json(link.rtt_us / 1e6) : json()},
                   {"segments_again", link.segments_again}});
  }
  return out;
}

// A peer can report any numbers: each share is between 0 and 1.
json telemetry_of(const GroupView& view, const Telemetries::Reports* reports,
                  const WallClock& clock) {
  if (reports == nullptr) return nullptr;
  const protocol::Telemetry& now = reports->last.telemetry;
  const protocol::Telemetry before =
      reports->before ? reports->before->telemetry : protocol::Telemetry{};
  const auto since = [&](uint64_t protocol::Telemetry::*field) {
    return static_cast<double>(now.*field - std::min(now.*field, before.*field));
  };
  const double over = std::max(1.0, since(&protocol::Telemetry::all_us));
  const auto share = [&](uint64_t protocol::Telemetry::*field) {
    return std::min(1.0, since(field) / over);
  };
  const auto rate = [&](uint64_t protocol::Telemetry::*field) { return since(field) / over * 1e6; };
  json out = {{"at", iso(clock, reports->last.at)},
              {"over_s", over / 1e6},
              {"waiting", share(&protocol::Telemetry::waiting_us)},
              {"transferring", share(&protocol::Telemetry::transferring_us)},
              {"joint", share(&protocol::Telemetry::joint_us)},
              {"saving", share(&protocol::Telemetry::saving_us)},
              {"failing", share(&protocol::Telemetry::failing_us)},
              {"sent_per_s", rate(&protocol::Telemetry::bytes_sent)},
              {"received_per_s", rate(&protocol::Telemetry::bytes_received)},
              {"bytes_sent", now.bytes_sent},
              {"bytes_received", now.bytes_received},
              {"links", links_of(now)},
              {"scalars", scalars_of(now)}};
  double computing = 1.0;
  for (const char* used : {"waiting", "transferring", "joint", "saving", "failing"})
    computing -= out[used].get<double>();
  out["computing"] = std::max(0.0, computing);
  const bool known = view.membership.find(now.waits_for) != nullptr;
  out["waits_for"] = known ? json(view.membership.name(now.waits_for)) : json();
  return out;
}

json peer_of(const RunView& run, const GroupView& view, PeerId peer, const Membership::Peer& about,
             const WallClock& clock) {
  const auto rank = view.membership.rank(peer);
  json out = {
      {"peer", text(peer)},
      {"rank", rank ? json(*rank) : json()},
      {"name", about.name},
      {"address", about.order == 0 ? about.seen_host : view.membership.member(peer).address},
      {"state", state_of(view, peer, about)},
      {"doing", nullptr},
      {"telemetry", telemetry_of(view, run.telemetries.find(peer), clock)}};
  if (rank) {
    out["doing"] = WaitTexts(view).activity(peer);
    if (!std::holds_alternative<LastCall::Unknown>(about.last_call.call))
      add_since(out, clock, since_of(view, peer, about.last_call));
  } else if (about.order != 0) {
    const Duration tick = protocol::tick_of(view.context.settings.peer_timeout);
    out["doing"] = "waits to be admitted";
    add_since(out, clock, {clock.now.since_start - about.waiting_ticks * tick});
  }
  return out;
}

// The members in rank order, then the others in the order of their registration.
json peers_of(const RunView& run, const GroupView& view, const WallClock& clock) {
  json out = json::array();
  const auto add = [&](PeerId peer) {
    out.push_back(peer_of(run, view, peer, *view.membership.find(peer), clock));
  };
  for (const PeerId member : view.membership.members()) add(member);
  for (const PeerId peer : view.membership.waiting()) add(peer);
  for (const auto& [peer, about] : view.membership.peers()) {
    if (about.order == 0) add(peer);
  }
  return out;
}

json ring_of(const GroupView& view) {
  json out = json::array();
  for (const RingLink& link : ring_links(view)) {
    out.push_back({{"from", *view.membership.rank(link.from)},
                   {"to", *view.membership.rank(link.to)},
                   {"bytes_per_s", link.rate > 0 ? json(link.rate) : json()},
                   {"round_trip_s", link.rtt > 0 ? json(link.rtt / 1e6) : json()}});
  }
  return out;
}

json calls_of(const Groups& groups, const Group& group, const WallClock& clock) {
  json out = json::array();
  const GroupView& view = group.view();
  for (AwaitedCall& call : awaited_calls(groups, group)) {
    if (out.size() == kCallsShown) break;
    json waiting = json::array(), missing = json::array();
    for (const PeerId member : call.waiting) waiting.push_back(*view.membership.rank(member));
    for (const Absent& absent : call.absent) {
      if (absent.group == view.id) missing = absent.ranks;
    }
    const Instant since = call.since;
    json one = {{"call", described(groups, group, std::move(call)).what},
                {"waiting", std::move(waiting)},
                {"missing", std::move(missing)}};
    add_since(one, clock, since);
    out.push_back(std::move(one));
  }
  return out;
}

json rate_of(const Statistics::Rate& rate) {
  if (rate.over == Duration{0}) return nullptr;
  return {{"operations_per_s", rate.operations},
          {"bytes_per_s", rate.bytes},
          {"over_s", seconds(rate.over)}};
}

json group_of(const RunView& run, const Group& group, const WallClock& clock) {
  const GroupView& view = group.view();
  const auto& agreed = view.agreement.recorded();
  return {
      {"group", view.id.value},
      {"phase", phase_of(view)},
      {"epoch", view.present.number() ? json(text(view.present.number())) : json()},
      {"members", view.membership.members().size()},
      {"min_peers", view.quorum.min_peers},
      {"founders", view.quorum.founders},
      {"shared_state",
       agreed ? json{{"revision", agreed->revision}, {"hash", hash_text(agreed->hash)}} : json()},
      {"rate", rate_of(view.present.statistics().rate(clock.now))},
      {"peers", peers_of(run, view, clock)},
      {"ring", ring_of(view)},
      {"calls", calls_of(run.groups, group, clock)},
      {"operations_open", view.present.operations().open_count()}};
}

json findings_of(const std::vector<Finding>& findings) {
  json out = json::array();
  for (const Finding& one : findings) {
    if (out.size() == kFindingsShown) break;
    out.push_back({{"code", text(one.code)},
                   {"severity", text(one.severity)},
                   {"whom", one.whom},
                   {"text", one.text},
                   {"next", one.next}});
  }
  return out;
}

json events_of(const History& history, const WallClock& clock) {
  json out = json::array();
  for (const History::Event& event : history.events()) {
    out.push_back(
        {{"at", iso(clock, event.at)}, {"level", level_text(event.level)}, {"text", event.text}});
  }
  return out;
}

}  // namespace

json snapshot(const RunView& view, const WallClock& clock, int64_t since, Detail detail) {
  PCCL_ASSERT(clock.now >= view.context.now);
  const std::vector<Finding> findings = diagnose(view);
  json groups = json::array();
  for (const auto& [id, group] : view.groups.all()) {
    if (groups.size() == kGroupsShown) break;
    groups.push_back(group_of(view, group, clock));
    if (detail == Detail::kHistory) add_course(groups.back(), group.view().present, clock.now);
  }
  const auto more = [](size_t all, size_t shown) { return all - std::min(all, shown); };
  const size_t groups_more = more(view.groups.size(), kGroupsShown);
  char incarnation[16];
  std::snprintf(incarnation, sizeof incarnation, "%x", view.context.options.incarnation);
  return {{"schema", kSnapshotSchema},
          {"run", view.context.options.run},
          {"master", {{"version", protocol::kRelease}, {"incarnation", incarnation}}},
          {"time", iso_text(std::chrono::milliseconds(clock.unix_ms))},
          {"up_since", iso_text(std::chrono::seconds(since))},
          {"up_s", std::max(0.0, static_cast<double>(clock.unix_ms - since * 1000) / 1e3)},
          {"settings", {{"peer_timeout_s", seconds(view.context.settings.peer_timeout)}}},
          {"findings", findings_of(findings)},
          {"findings_more", more(findings.size(), kFindingsShown)},
          {"groups", std::move(groups)},
          {"groups_more", groups_more},
          {"events", events_of(view.context.history, clock)}};
}

}  // namespace pccl::master
