#include "master/operator/metrics.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

class MetricsTest : public testing::Test {
 protected:
  void join(const std::vector<std::string>& names, const std::vector<std::string>& shown = {}) {
    const auto size = static_cast<uint32_t>(names.size());
    for (uint32_t rank = 0; rank < size; ++rank) {
      protocol::Hello hello = Harness::hello(size, static_cast<int32_t>(rank));
      hello.min_peers = 2;
      hello.name = shown.empty() ? names[rank] : shown[rank];
      h.enlist(names[rank], hello);
    }
    h.link_all();
  }
  void commit(const std::vector<std::string>& names, uint32_t sequence) {
    for (const auto& name : names)
      h.say(name, protocol::Begin{epoch(1), op(sequence), all_reduce(25)});
    for (const auto& name : names) h.say(name, protocol::Done{epoch(1), op(sequence), 0});
  }
  std::string scrape() {
    h.step(Watched{});
    return metrics_text({{h.core().view(), scraped}}, JournalCounts{12, false}, h.now());
  }
  // The value of the sample that begins with this text; empty: there is none.
  std::string value(const std::string& sample) {
    const std::string text = "\n" + scrape();
    const size_t at = text.find("\n" + sample + " ");
    if (at == std::string::npos) return "";
    const size_t from = at + sample.size() + 2;
    return text.substr(from, text.find('\n', from) - from);
  }
  // The survivors of a loss answer the freeze request.
  void report(const std::vector<std::string>& names) {
    for (const auto& name : names) h.say(name, protocol::StateReport{epoch(1), {}});
  }
  static void replace(std::string& text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    if (at != std::string::npos) text.replace(at, from.size(), to);
  }
  static void expect_unique(const std::string& text) {
    std::istringstream lines(text);
    std::set<std::string> seen;
    for (std::string line; std::getline(lines, line);)
      EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << line;
  }

  Harness h;
  Scraped scraped;
};

// tests/tidy/test_metrics.py gives this text to `promtool check metrics`.
constexpr const char* kGolden =
    R"(# HELP pccl_build_info Release and version of the protocol of the master; always 1.
# TYPE pccl_build_info gauge
pccl_build_info{version="VERSION",protocol="PROTOCOL"} 1
# HELP pccl_journal_writes_total Entries that are durable in the journal.
# TYPE pccl_journal_writes_total counter
pccl_journal_writes_total 12
# HELP pccl_journal_failed 1: the journal can no longer be written, the master ends.
# TYPE pccl_journal_failed gauge
pccl_journal_failed 0
# HELP pccl_standing_still_seconds Time for which a finding is an error; 0 without one.
# TYPE pccl_standing_still_seconds gauge
pccl_standing_still_seconds{run="run"} 0
# HELP pccl_finding 1: the run has the finding with this code.
# TYPE pccl_finding gauge
pccl_finding{run="run",code="alone_waiting_for_founders"} 0
pccl_finding{run="run",code="newcomer_unreachable"} 0
pccl_finding{run="run",code="newcomer_waits_for_update_topology"} 0
pccl_finding{run="run",code="rank_has_not_called"} 0
pccl_finding{run="run",code="different_calls"} 0
pccl_finding{run="run",code="operations_in_flight"} 0
pccl_finding{run="run",code="wait_cycle"} 0
pccl_finding{run="run",code="below_min_peers"} 0
pccl_finding{run="run",code="peer_silent"} 0
pccl_finding{run="run",code="slow_peer"} 0
pccl_finding{run="run",code="link_down"} 0
pccl_finding{run="run",code="slow_link"} 0
pccl_finding{run="run",code="plan_outdated"} 0
pccl_finding{run="run",code="master_recovering"} 0
pccl_finding{run="run",code="split_world"} 0
pccl_finding{run="run",code="state_refused"} 0
pccl_finding{run="run",code="states_differ"} 0
pccl_finding{run="run",code="version_or_terms_refused"} 0
pccl_finding{run="run",code="nothing_wrong"} 1
# HELP pccl_series_dropped_total Peers and groups whose series were left out, in all scrapes.
# TYPE pccl_series_dropped_total counter
pccl_series_dropped_total{run="run"} 0
# HELP pccl_members Members of the group.
# TYPE pccl_members gauge
pccl_members{run="run",group="0"} 2
# HELP pccl_min_peers Members that the group needs.
# TYPE pccl_min_peers gauge
pccl_min_peers{run="run",group="0"} 2
# HELP pccl_waiting_peers Peers that wait to be admitted.
# TYPE pccl_waiting_peers gauge
pccl_waiting_peers{run="run",group="0"} 0
# HELP pccl_state_revision Revision of the shared state that was agreed on last.
# TYPE pccl_state_revision gauge
pccl_state_revision{run="run",group="0"} 7
# HELP pccl_epochs_total Epochs that have begun.
# TYPE pccl_epochs_total counter
pccl_epochs_total{run="run",group="0"} 1
# HELP pccl_joins_total Peers that became members.
# TYPE pccl_joins_total counter
pccl_joins_total{run="run",group="0"} 2
# HELP pccl_losses_total Members that were lost or have left, by reason.
# TYPE pccl_losses_total counter
pccl_losses_total{run="run",group="0",reason="left"} 0
pccl_losses_total{run="run",group="0",reason="connection"} 0
pccl_losses_total{run="run",group="0",reason="silence"} 0
pccl_losses_total{run="run",group="0",reason="link"} 0
pccl_losses_total{run="run",group="0",reason="removed"} 0
pccl_losses_total{run="run",group="0",reason="ended"} 0
# HELP pccl_operations_total Operations that have ended.
# TYPE pccl_operations_total counter
pccl_operations_total{run="run",group="0",kind="all_reduce",outcome="committed"} 1
pccl_operations_total{run="run",group="0",kind="all_reduce",outcome="aborted"} 0
# HELP pccl_operation_seconds From the first call of a member to the decision that commits.
# TYPE pccl_operation_seconds histogram
pccl_operation_seconds_bucket{run="run",group="0",le="0.001"} 1
pccl_operation_seconds_bucket{run="run",group="0",le="0.003"} 1
pccl_operation_seconds_bucket{run="run",group="0",le="0.01"} 1
pccl_operation_seconds_bucket{run="run",group="0",le="0.03"} 1
pccl_operation_seconds_bucket{run="run",group="0",le="0.1"} 1
pccl_operation_seconds_bucket{run="run",group="0",le="0.3"} 1
pccl_operation_seconds_bucket{run="run",group="0",le="1"} 1
pccl_operation_seconds_bucket{run="run",group="0",le="3"} 1
pccl_operation_seconds_bucket{run="run",group="0",le="10"} 1
pccl_operation_seconds_bucket{run="run",group="0",le="30"} 1
pccl_operation_seconds_bucket{run="run",group="0",le="100"} 1
pccl_operation_seconds_bucket{run="run",group="0",le="300"} 1
pccl_operation_seconds_bucket{run="run",group="0",le="+Inf"} 1
pccl_operation_seconds_sum{run="run",group="0"} 0
pccl_operation_seconds_count{run="run",group="0"} 1
# HELP pccl_reduced_bytes_total Bytes of the tensors of one rank in committed operations.
# TYPE pccl_reduced_bytes_total counter
pccl_reduced_bytes_total{run="run",group="0"} 100
# HELP pccl_peer_up Connected peers of this name; 0 for ten minutes after the last.
# TYPE pccl_peer_up gauge
pccl_peer_up{run="run",group="0",peer="osaka"} 1
pccl_peer_up{run="run",group="0",peer="tokyo"} 1
# HELP pccl_peer_last_heard_seconds Time since the master heard from the peer.
# TYPE pccl_peer_last_heard_seconds gauge
pccl_peer_last_heard_seconds{run="run",group="0",peer="osaka"} 0
pccl_peer_last_heard_seconds{run="run",group="0",peer="tokyo"} 0
# HELP pccl_peer_waiting_seconds_total Time that the peer has waited for other members.
# TYPE pccl_peer_waiting_seconds_total counter
pccl_peer_waiting_seconds_total{run="run",group="0",peer="tokyo"} 1.5
# HELP pccl_link_bytes_total Bytes that the peer has sent to its neighbour.
# TYPE pccl_link_bytes_total counter
pccl_link_bytes_total{run="run",group="0",peer="tokyo",to="osaka"} 7000
# HELP pccl_link_round_trip_seconds Round trip between the peer and its neighbour.
# TYPE pccl_link_round_trip_seconds gauge
pccl_link_round_trip_seconds{run="run",group="0",peer="tokyo",to="osaka"} 0.031
# HELP pccl_link_lanes Connections from the peer to its neighbour.
# TYPE pccl_link_lanes gauge
pccl_link_lanes{run="run",group="0",peer="tokyo",to="osaka"} 4
# HELP pccl_link_retransmitted_segments_total TCP segments that were sent again to the neighbour.
# TYPE pccl_link_retransmitted_segments_total counter
pccl_link_retransmitted_segments_total{run="run",group="0",peer="tokyo",to="osaka"} 17
)";

TEST_F(MetricsTest, ARunOfTwoHasThisText) {
  join({"tokyo", "osaka"});
  commit({"tokyo", "osaka"}, 0);
  for (const char* name : {"tokyo", "osaka"}) h.vote(name, epoch(1), 0, kSync, offer(7, {1}));
  h.step(Watched{});
  protocol::Telemetry report;
  report.all_us = 9'000'000;
  report.waiting_us = 1'500'000;
  report.links = {{h.id("osaka"), 7000, 8000, 4, 2, 31000, 17}};
  h.say("tokyo", report);
  std::string text = scrape();
  replace(text, protocol::kRelease, "VERSION");
  replace(text, "protocol=\"" + std::to_string(protocol::kSpoken.highest), "protocol=\"PROTOCOL");
  EXPECT_EQ(text, kGolden);
}

TEST_F(MetricsTest, AMasterWithoutRunsAndJournalHasItsVersion) {
  const std::string text = metrics_text({}, std::nullopt, h.now());
  EXPECT_TRUE(contains(text, "pccl_build_info{version=\"")) << text;
  EXPECT_FALSE(contains(text, "pccl_journal")) << text;
}

TEST_F(MetricsTest, CountersCountEachKindOfLoss) {
  join({"a", "b", "c", "d", "e"});
  const auto losses = [this](const std::string& reason) {
    return value("pccl_losses_total{run=\"run\",group=\"0\",reason=\"" + reason + "\"}");
  };
  EXPECT_EQ(losses("left"), "0");
  h.say("e", protocol::Leave{});
  report({"a", "b", "c", "d"});
  h.tick_with({"a", "b", "c"}, 25);
  EXPECT_EQ(losses("left"), "1");
  EXPECT_EQ(losses("silence"), "1") << "d";
  EXPECT_EQ(losses("connection"), "0");
  h.close("c");
  h.tick_with({"a", "b"}, 25);
  EXPECT_EQ(losses("connection"), "1");
  h.step(Ended{"because"});
  EXPECT_EQ(losses("ended"), "");  // the group is forgotten with its last peer
}

TEST_F(MetricsTest, AbortedOperationsAreCounted) {
  join({"a", "b"});
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(25)});
  h.say("b", protocol::Begin{epoch(1), op(0), all_reduce(26)});
  const std::string labels = "{run=\"run\",group=\"0\",kind=\"all_reduce\",outcome=\"";
  EXPECT_EQ(value("pccl_operations_total" + labels + "aborted\"}"), "1");
  EXPECT_EQ(value("pccl_operations_total" + labels + "committed\"}"), "0");
}

TEST_F(MetricsTest, OperationsThatALossEndsAreCounted) {
  join({"a", "b", "c"});
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(25)});
  h.say("c", protocol::Leave{});
  h.say("a", protocol::StateReport{epoch(1), {{op(0), protocol::OpState::kNotDone}}});
  h.say("b", protocol::StateReport{epoch(1), {}});
  EXPECT_EQ(value("pccl_operations_total{run=\"run\",group=\"0\",kind=\"all_reduce\",outcome="
                  "\"aborted\"}"),
            "1");
}

TEST_F(MetricsTest, ARunStandsStillFromTheFirstScrapeWithAnError) {
  join({"a", "b"});
  const std::string still = "pccl_standing_still_seconds{run=\"run\"}";
  const std::string finding = "pccl_finding{run=\"run\",code=\"rank_has_not_called\"}";
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(25)});
  EXPECT_EQ(value(finding), "0");
  h.tick_with({"a", "b"}, 22);
  EXPECT_EQ(value(still), "0");
  EXPECT_EQ(value(finding), "1");
  h.tick_with({"a", "b"}, 60);
  EXPECT_EQ(value(still), "30");
  h.say("b", protocol::Begin{epoch(1), op(0), all_reduce(25)});
  for (const char* name : {"a", "b"}) h.say(name, protocol::Done{epoch(1), op(0), 0});
  EXPECT_EQ(value(still), "0");
}

TEST_F(MetricsTest, PeersOfOneNameShareTheirSeries) {
  join({"a", "b", "c"}, {"box", "box", "other"});
  h.step(Watched{});
  for (const char* name : {"a", "b"}) {
    protocol::Telemetry report;
    report.all_us = report.waiting_us = 2'000'000;
    report.links = {{h.id("c"), 100, 0, 2, 1, 1000, 0}};
    h.say(name, report);
  }
  expect_unique(scrape());
  EXPECT_EQ(value("pccl_peer_up{run=\"run\",group=\"0\",peer=\"box\"}"), "2");
  EXPECT_EQ(value("pccl_peer_waiting_seconds_total{run=\"run\",group=\"0\",peer=\"box\"}"), "4");
  EXPECT_EQ(value("pccl_link_bytes_total{run=\"run\",group=\"0\",peer=\"box\",to=\"other\"}"),
            "200");
}

TEST_F(MetricsTest, APeerWithoutANameIsUnnamed) {
  join({"a", "b"}, {"", ""});
  expect_unique(scrape());
  EXPECT_EQ(value("pccl_peer_up{run=\"run\",group=\"0\",peer=\"unnamed\"}"), "2");
}

TEST_F(MetricsTest, ALostPeerStaysForTenMinutes) {
  join({"a", "b", "c"});
  h.say("c", protocol::Leave{});
  report({"a", "b"});
  const std::string up = "pccl_peer_up{run=\"run\",group=\"0\",peer=\"c\"}";
  h.tick_with({"a", "b"}, 1198);
  EXPECT_EQ(value(up), "0");
  EXPECT_EQ(value("pccl_peer_last_heard_seconds{run=\"run\",group=\"0\",peer=\"c\"}"), "599");
  h.tick_with({"a", "b"}, 2);
  EXPECT_EQ(value(up), "");
}

TEST_F(MetricsTest, NamesAndGroupsAreBounded) {
  for (uint32_t i = 0; i < 70; ++i) {
    protocol::Hello hello = Harness::hello(1, 0, i);
    for (int k = 0; k < 5; ++k) {
      const std::string name = std::to_string(i) + "-" + std::to_string(k);
      hello.name = name;
      hello.rank = -1;
      h.enlist(name, hello);
    }
  }
  const std::string text = scrape();
  expect_unique(text);
  size_t peers = 0;
  for (size_t at = 0; (at = text.find("\npccl_peer_up{", at)) != std::string::npos; ++at) ++peers;
  EXPECT_EQ(peers, kPeersMeasured);
  EXPECT_TRUE(contains(text, "group=\"63\"")) << "of the first groups";
  EXPECT_FALSE(contains(text, "group=\"64\""));
  EXPECT_TRUE(contains(
      text, "\npccl_series_dropped_total{run=\"run\"} " + std::to_string(6 + 64 * 5 - 256) + "\n"));
  EXPECT_EQ(value("pccl_series_dropped_total{run=\"run\"}"),
            std::to_string(2 * (6 + 64 * 5 - 256)));
}

TEST_F(MetricsTest, NoLabelHasAnIdOrAnAddress) {
  join({"a", "b"});
  commit({"a", "b"}, 0);
  const std::string text = scrape();
  for (const char* secret : {"10.0.0.1", "1.1", "1.2", "epoch=", "tag="})
    EXPECT_FALSE(contains(text, secret)) << secret;
}

}  // namespace
}  // namespace pccl::master
