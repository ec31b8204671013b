#include "csrc/peer/shell/telemetry_sample.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace pccl::peer {
namespace {

uint64_t microseconds(Duration time) {
  return static_cast<uint64_t>(std::max(Duration{0}, time) / std::chrono::microseconds(1));
}

uint32_t short_microseconds(Duration time) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(microseconds(time), std::numeric_limits<uint32_t>::max()));
}

}  // namespace

protocol::Telemetry telemetry_sample(const TimeTotals& time, const TimeTotals& before,
                                     const ring::DataCounters& data,
                                     const std::vector<PeerId>& links,
                                     std::vector<protocol::Scalar> scalars) {
  protocol::Telemetry sample;
  sample.all_us = microseconds(time.all);
  sample.waiting_us = microseconds(time.waiting);
  sample.transferring_us = microseconds(time.transferring);
  sample.joint_us = microseconds(time.joint);
  sample.saving_us = microseconds(time.saving);
  sample.failing_us = microseconds(time.failing);
  for (const auto& [member, waited] : time.waiting_for) {
    const auto earlier = before.waiting_for.find(member);
    const uint64_t since =
        microseconds(earlier == before.waiting_for.end() ? waited : waited - earlier->second);
    if (since <= sample.waits_for_us) continue;
    sample.waits_for = member;
    sample.waits_for_us = since;
  }
  sample.bytes_sent = data.engine.bytes_sent;
  sample.bytes_received = data.engine.bytes_received;
  for (const link::LinkCounters& link : data.links) {
    if (std::find(links.begin(), links.end(), link.peer) == links.end()) continue;
    if (sample.links.size() == protocol::kLinksReportedMax) break;
    sample.links.push_back({link.peer, link.bytes_sent, link.bytes_received, link.lanes,
                            link.lanes_used, short_microseconds(link.rtt), link.segments_again});
  }
  sample.scalars = std::move(scalars);
  return sample;
}

}  // namespace pccl::peer
