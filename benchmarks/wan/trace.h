// Trace: the packets that one thread of the emulator carries between start() and end(), with their
// times and their payload. Nothing is recorded at other times: the carrier asks on() first.
// add() and arrived() belong to the carrier's thread, all other methods to the main thread. A
// number of add() stays valid for arrived() for ever; arrived() ignores packets of earlier traces.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <ostream>
#include <utility>
#include <vector>

namespace wan {

// A packet, or a segment of many that travel together, as the file has it: little-endian, then
// `bytes` bytes of payload. Times are nanoseconds of the monotonic clock.
struct TracedPacket {
  int64_t came = 0;                      // from its host
  int64_t sent = 0;                      // when its last byte was through the uplink of its host
  int64_t left = 0;                      // when it was through the slowest part of its path, too
  int64_t arrived = 0;                   // given to the other host; 0: lost, or still under way
  uint32_t from = 0, to = 0;             // addresses
  uint16_t source = 0, destination = 0;  // ports
  uint32_t sequence = 0, acknowledged = 0;
  uint32_t bytes = 0;       // of payload
  uint32_t wire_bytes = 0;  // with the headers of all its packets
  uint32_t flags = 0;       // kSyn
};
constexpr uint32_t kSyn = 1;
static_assert(sizeof(TracedPacket) == 64);

class Trace {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }

  void start() {
    const std::lock_guard lock(mutex_);
    first_ += packets_.size();
    packets_.clear();
    on_ = true;
  }
  void end() { on_ = false; }

  // Returns the number of the packet.
  uint64_t add(const TracedPacket& packet, const uint8_t* payload) {
    const std::lock_guard lock(mutex_);
    packets_.push_back({packet, std::vector<uint8_t>(payload, payload + packet.bytes)});
    return first_ + packets_.size() - 1;
  }
  void arrived(uint64_t number, int64_t when) {
    const std::lock_guard lock(mutex_);
    if (number >= first_ && number - first_ < packets_.size())
      packets_[number - first_].first.arrived = when;
  }

  void write(std::ostream& out) {
    const std::lock_guard lock(mutex_);
    for (const auto& [packet, payload] : packets_) {
      out.write(reinterpret_cast<const char*>(&packet), sizeof(packet));
      out.write(reinterpret_cast<const char*>(payload.data()),
                static_cast<std::streamsize>(payload.size()));
    }
    first_ += packets_.size();
    packets_.clear();
  }

 private:
  std::atomic<bool> on_ = false;
  std::mutex mutex_;
  uint64_t first_ = 0;  // number of the first one of them
  std::deque<std::pair<TracedPacket, std::vector<uint8_t>>> packets_;
};

}  // namespace wan
