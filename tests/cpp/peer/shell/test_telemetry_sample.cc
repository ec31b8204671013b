#include "csrc/peer/shell/telemetry_sample.h"

#include <gtest/gtest.h>

#include "csrc/protocol/codec.h"

namespace pccl::peer {
namespace {

using std::chrono::seconds;

TEST(TelemetrySample, HasTheTotalsAndTheWantedLinks) {
  TimeTotals time;
  time.all = seconds(100);
  time.waiting = seconds(7);
  time.waiting_for = {{PeerId{2}, seconds(3)}, {PeerId{3}, seconds(4)}};
  TimeTotals before;
  before.waiting_for = {{PeerId{2}, seconds(1)}, {PeerId{3}, seconds(4)}};
  ring::DataCounters data;
  data.engine.bytes_sent = 1000;
  for (const uint64_t peer : {2, 3, 4}) {
    auto& link = data.links.emplace_back();
    link.peer = {peer};
    link.bytes_sent = 10 * peer;
    link.segments_again = 5;
  }
  const protocol::Telemetry sample =
      telemetry_sample(time, before, data, {PeerId{3}, PeerId{9}}, {{"loss", 2.5}});
  EXPECT_EQ(sample.all_us, 100'000'000u);
  EXPECT_EQ(sample.waiting_us, 7'000'000u);
  EXPECT_EQ(sample.waits_for, PeerId{2}) << "it has not waited for the other one since then";
  EXPECT_EQ(sample.waits_for_us, 2'000'000u);
  EXPECT_EQ(sample.bytes_sent, 1000u);
  ASSERT_EQ(sample.links.size(), 1u);
  EXPECT_EQ(sample.links[0].bytes_sent, 30u);
  EXPECT_EQ(sample.links[0].segments_again, 5u);
  EXPECT_EQ(sample.scalars[0].name, "loss");
}

// 128 members that report every two seconds cost the master 26 kB/s.
TEST(TelemetrySample, TakesAtMost700Bytes) {
  protocol::Telemetry most;
  most.links.resize(protocol::kLinksReportedMax);
  most.scalars.resize(protocol::kScalarsMax,
                      {std::string(protocol::kScalarNameBytesMax, 'x'), 1.5});
  std::vector<std::byte> out;
  protocol::encode(most, out);
  EXPECT_LE(out.size(), 700u);
  most.scalars.clear();
  out.clear();
  protocol::encode(most, out);
  EXPECT_LE(out.size(), 200u);
}

}  // namespace
}  // namespace pccl::peer
