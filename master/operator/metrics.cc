#include "master/operator/metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/protocol/version.h"
#include "master/context.h"
#include "master/diagnosis/diagnosis.h"
#include "master/group/groups.h"
#include "master/members/telemetries.h"
#include "master/run_view.h"

namespace pccl::master {
namespace {

using Labels = MetricsWriter::Labels;
constexpr auto kCounter = MetricFamily::Type::kCounter;
constexpr auto kGauge = MetricFamily::Type::kGauge;
constexpr auto kHistogram = MetricFamily::Type::kHistogram;

// tests/tidy/test_metrics.py compares this table with docs/watching.md.
constexpr MetricFamily kFamilies[] = {
    {"pccl_build_info", kGauge, "Release and version of the protocol of the master; always 1."},
    {"pccl_journal_writes_total", kCounter, "Entries that are durable in the journal."},
    {"pccl_journal_failed", kGauge, "1: the journal can no longer be written, the master ends."},
    {"pccl_standing_still_seconds", kGauge, "Time for which a finding is an error; 0 without one."},
    {"pccl_finding", kGauge, "1: the run has the finding with this code."},
    {"pccl_series_dropped_total", kCounter,
     "Peers and groups whose series were left out, in all scrapes."},
    {"pccl_members", kGauge, "Members of the group."},
    {"pccl_min_peers", kGauge, "Members that the group needs."},
    {"pccl_waiting_peers", kGauge, "Peers that wait to be admitted."},
    {"pccl_state_revision", kGauge, "Revision of the shared state that was agreed on last."},
    {"pccl_epochs_total", kCounter, "Epochs that have begun."},
    {"pccl_joins_total", kCounter, "Peers that became members."},
    {"pccl_losses_total", kCounter, "Members that were lost or have left, by reason."},
    {"pccl_operations_total", kCounter, "Operations that have ended."},
    {"pccl_operation_seconds", kHistogram,
     "From the first call of a member to the decision that commits."},
    {"pccl_reduced_bytes_total", kCounter,
     "Bytes of the tensors of one rank in committed operations."},
    {"pccl_peer_up", kGauge, "Connected peers of this name; 0 for ten minutes after the last."},
    {"pccl_peer_last_heard_seconds", kGauge, "Time since the master heard from the peer."},
    {"pccl_peer_waiting_seconds_total", kCounter,
     "Time that the peer has waited for other members."},
    {"pccl_link_bytes_total", kCounter, "Bytes that the peer has sent to its neighbour."},
    {"pccl_link_round_trip_seconds", kGauge, "Round trip between the peer and its neighbour."},
    {"pccl_link_lanes", kGauge, "Connections from the peer to its neighbour."},
    {"pccl_link_retransmitted_segments_total", kCounter,
     "TCP segments that were sent again to the neighbour."},
};

// The peers of one name in a group, or the links between two names.
struct PeerSums {
  uint64_t up = 0;
  Duration silent{0};  // the longest
  bool reports = false;
  double waiting_s = 0;
};
struct LinkSums {
  double bytes = 0, lanes = 0, segments_again = 0;
  double round_trip_s = 0;  // the longest; 0: unknown
};
struct ByName {
  std::map<std::string, PeerSums> peers;
  std::map<std::pair<std::string, std::string>, LinkSums> links;
};

std::string name_of(const std::string& name) { return name.empty() ? "unnamed" : printable(name); }

void add_telemetry(ByName& to, const std::string& name, const GroupView& view,
                   const protocol::Telemetry& telemetry) {
  PeerSums& peers = to.peers.at(name);
  peers.reports = true;
  peers.waiting_s += static_cast<double>(telemetry.waiting_us) / 1e6;
  for (const protocol::LinkTelemetry& link : telemetry.links) {
    const Membership::Peer* const other = view.membership.find(link.peer);
    if (other == nullptr || !to.peers.contains(name_of(other->name))) continue;
    LinkSums& links = to.links[{name, name_of(other->name)}];
    links.bytes += static_cast<double>(link.bytes_sent);
    links.lanes += link.lanes;
    links.segments_again += link.segments_again;
    links.round_trip_s = std::max(links.round_trip_s, link.rtt_us / 1e6);
  }
}

class RunMetrics {
 public:
  RunMetrics(MetricsWriter& out, const MeasuredRun& run, Instant now)
      : out_(out), view_(run.view), scraped_(run.scraped), now_(now) {
    PCCL_ASSERT(now >= view_.context.now);
  }

  void add() {
    add_findings();
    size_t groups = 0;
    for (const auto& [id, group] : view_.groups.all()) {
      if (groups == kGroupsMeasured || out_.bytes() > kMetricsBytesMax) {
        ++scraped_.dropped;
        continue;
      }
      ++groups;
      add(group.view());
    }
    out_.add("pccl_series_dropped_total", {{"run", run()}}, static_cast<double>(scraped_.dropped));
  }

 private:
  const std::string& run() const { return view_.context.options.run; }

  void add_findings() {
    std::array<bool, kFindingCodes> found{};
    bool error = false;
    for (const Finding& one : diagnose(view_)) {
      found.at(static_cast<size_t>(one.code)) = true;
      error = error || one.severity == Severity::kError;
    }
    out_.add("pccl_standing_still_seconds", {{"run", run()}},
             to_seconds(scraped_.standing.look(error, now_)));
    for (size_t code = 0; code < kFindingCodes; ++code) {
      out_.add("pccl_finding", {{"run", run()}, {"code", text(static_cast<FindingCode>(code))}},
               found[code] ? 1 : 0);
    }
  }

  void add(const GroupView& view) {
    const std::string group = std::to_string(view.id.value);
    const Labels labels = {{"run", run()}, {"group", group}};
    out_.add("pccl_members", labels, static_cast<double>(view.membership.members().size()));
    out_.add("pccl_min_peers", labels, view.quorum.min_peers);
    out_.add("pccl_waiting_peers", labels, static_cast<double>(view.membership.waiting().size()));
    if (const auto& agreed = view.agreement.recorded())
      out_.add("pccl_state_revision", labels, static_cast<double>(agreed->revision));
    add_totals(labels, view.present.statistics().totals());
    add_peers(labels, by_name(view));
  }

  void add_totals(const Labels& labels, const Statistics::Totals& totals) {
    const auto with = [&labels](std::initializer_list<MetricsWriter::Label> more) {
      Labels all = labels;
      all.insert(all.end(), more);
      return all;
    };
    out_.add("pccl_epochs_total", labels, static_cast<double>(totals.epochs));
    out_.add("pccl_joins_total", labels, static_cast<double>(totals.joins));
    for (size_t cause = 0; cause < kLossCauses; ++cause) {
      out_.add("pccl_losses_total", with({{"reason", text(static_cast<LossCause>(cause))}}),
               static_cast<double>(totals.losses[cause]));
    }
    for (size_t kind = 0; kind < Statistics::kKinds; ++kind) {
      if (totals.committed[kind] + totals.aborted[kind] == 0) continue;
      const char* name = protocol::text(static_cast<protocol::OpKind>(kind));
      out_.add("pccl_operations_total", with({{"kind", name}, {"outcome", "committed"}}),
               static_cast<double>(totals.committed[kind]));
      out_.add("pccl_operations_total", with({{"kind", name}, {"outcome", "aborted"}}),
               static_cast<double>(totals.aborted[kind]));
    }
    out_.add_histogram("pccl_operation_seconds", labels, Statistics::kBounds, totals.took,
                       totals.took_s);
    out_.add("pccl_reduced_bytes_total", labels, totals.bytes);
  }

  // Whether the series of this peer are within the bound of the run.
  bool takes(const std::string& name) {
    if (names_.contains(name)) return true;
    if (names_.size() == kPeersMeasured) return false;
    names_.insert(name);
    return true;
  }

  ByName by_name(const GroupView& view) {
    ByName all;
    const Duration tick = protocol::tick_of(view.context.settings.peer_timeout);
    for (const auto& [peer, about] : view.membership.peers()) {
      if (!takes(name_of(about.name))) {
        ++scraped_.dropped;
        continue;
      }
      PeerSums& peers = all.peers[name_of(about.name)];
      peers.up += about.connected ? 1 : 0;
      const int ticks = about.connected ? view.connections.silent_ticks(peer) : about.away_ticks;
      peers.silent = std::max(peers.silent, ticks * tick);
    }
    for (const Statistics::Gone& gone : view.present.statistics().gone(now_)) {
      if (all.peers.contains(name_of(gone.name)) || !takes(name_of(gone.name))) continue;
      all.peers[name_of(gone.name)].silent = now_ - gone.at;
    }
    for (const auto& [peer, about] : view.membership.peers()) {
      const Telemetries::Reports* const reports = view_.telemetries.find(peer);
      if (reports != nullptr && all.peers.contains(name_of(about.name)))
        add_telemetry(all, name_of(about.name), view, reports->last.telemetry);
    }
    return all;
  }

  void add_peers(const Labels& labels, const ByName& all) {
    for (const auto& [name, peers] : all.peers) {
      Labels with = labels;
      with.emplace_back("peer", name);
      out_.add("pccl_peer_up", with, static_cast<double>(peers.up));
      out_.add("pccl_peer_last_heard_seconds", with, to_seconds(peers.silent));
      if (peers.reports) out_.add("pccl_peer_waiting_seconds_total", with, peers.waiting_s);
    }
    for (const auto& [ends, links] : all.links) {
      Labels with = labels;
      with.emplace_back("peer", ends.first);
      with.emplace_back("to", ends.second);
      out_.add("pccl_link_bytes_total", with, links.bytes);
      out_.add("pccl_link_lanes", with, links.lanes);
      out_.add("pccl_link_retransmitted_segments_total", with, links.segments_again);
      if (links.round_trip_s > 0)
        out_.add("pccl_link_round_trip_seconds", with, links.round_trip_s);
    }
  }

  MetricsWriter& out_;
  const RunView& view_;
  Scraped& scraped_;
  const Instant now_;
  std::set<std::string> names_;  // of peers, in this scrape
};

}  // namespace

std::vector<MetricFamily> metric_families() { return {std::begin(kFamilies), std::end(kFamilies)}; }

std::string metrics_text(const std::vector<MeasuredRun>& runs,
                         const std::optional<JournalCounts>& journal, Instant now) {
  MetricsWriter out(kFamilies);
  const std::string version = std::to_string(protocol::kSpoken.highest);
  out.add("pccl_build_info", {{"version", protocol::kRelease}, {"protocol", version}}, 1);
  if (journal) {
    out.add("pccl_journal_writes_total", {}, static_cast<double>(journal->writes));
    out.add("pccl_journal_failed", {}, journal->failed ? 1 : 0);
  }
  for (const MeasuredRun& run : runs) RunMetrics(out, run, now).add();
  return out.text();
}

}  // namespace pccl::master
