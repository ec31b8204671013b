// LinkProbe measures the goodput of one link for the master (PROTOCOL.md, section 5.4). Both ends
// of the link get the same Probe. Each end posts two transfers of scratch memory: one to the other
// end, and one from there. So the link carries data in both directions, on the lanes that a large
// tensor would use. The bytes that arrive give the rate of that direction. LinkProbe belongs to the
// PeerCore, and is pure: its only input about the link are the samples that it asks for
// (SampleLink). The transfers are operations of the ring that yield to all others
// (ring::Task::filler). They are not announced to the master.
// The clock of an end starts with the first byte that arrives there. The clocks of the two ends
// differ by at most the one-way delay of the path, and data arrives later by this delay, too. So
// each end can stop by its own clock, and has data from the other end as long as it measures.
// A sample counts data behind a lost packet only when that packet has arrived, and then counts all
// of this data at once. So a sample may show too few bytes. At a begin of the measurement this
// inflates the rate, and at an end it deflates the rate. The report therefore takes the lowest rate
// over all begins for each end, and then the highest of these rates.
// A transfer may be over before the time of the probe, because the path is very fast or the probe
// has a limit of bytes. Then about the last two thirds of the bytes count. The transfer to the
// other end continues, since the other direction may be slower.
// Invariants:
//   1. There is at most one probe at a time. A later one ends it.
//   2. Each transfer that was posted is ended, at the latest when the epoch ends. busy() is true
//      until the ring has drained all of them.
//   3. A probe is answered with one ProbeReport, unless a later probe or the end of the epoch ends
//      it.
//   4. The time, the memory and the sent bytes of a probe are bounded, whatever the other end does.
// Failures: a report of 0 bytes means that there is no link or no memory, that no data arrived, or
// that the other end is no member.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/base/status.h"
#include "csrc/peer/membership.h"
#include "csrc/ring/lent_memory.h"

namespace pccl::peer {

class LinkProbe {
 public:
  LinkProbe(Context& context, const Membership& membership)
      : context_(context), membership_(membership) {}

  // kProtocol if the probe makes no sense. A repeated probe changes nothing.
  Status begin(const protocol::Probe& probe);
  void sampled(const LinkSampled& sample);

  // Events from the ring. False: the operation is no transfer of a probe.
  bool transferred(Epoch epoch, OpKey key);
  bool drained(Epoch epoch, OpKey key) { return transfers_.erase({epoch, key}) > 0; }
  bool failed(Epoch epoch, OpKey key);

  void stop();  // the epoch is over, or this peer is out of the run
  bool busy() const { return !transfers_.empty(); }

  void on_time();
  std::optional<Instant> deadline() const;
  void check() const;  // asserts the invariants

  enum class State { kIdle, kPreparing, kWaiting, kMeasuring, kSending };

  // The operation that carries the data of a probe from `source` to `destination`.
  static OpKey key_of(PeerId source, PeerId destination, uint32_t incarnation, uint32_t round);

 private:
  // The number of bytes that had arrived at the time `at`.
  struct Mark {
    Instant at;
    uint64_t bytes = 0;
  };

  void enter(State next);  // REQUIRES: the table allows it
  ring::Task task_of(PeerId source, PeerId destination) const;
  void post();
  bool sends() const;  // the transfer to the other end is under way
  void measure(const Mark& mark);
  Instant next_look() const;
  void look();
  void finish(uint64_t bytes, Duration time);
  void finish_with(const Mark& last);
  void end_transfers();
  // A part of the time of this probe, in percent.
  Duration percent(int part) const {
    return std::chrono::milliseconds(probe_.milliseconds) * part / 100;
  }

  Context& context_;
  const Membership& membership_;
  // The transfers that are not drained, by epoch and key. The value: the transfer has been ended.
  std::map<std::pair<Epoch, OpKey>, bool> transfers_;
  // The last Probe: its epoch, the incarnation of the master, its round.
  std::optional<std::tuple<Epoch, uint32_t, uint32_t>> last_;

  // ---- Of the probe under way ----
  State state_ = State::kIdle;
  protocol::Probe probe_;
  uint32_t incarnation_ = 0;  // of the master that has sent the probe
  Instant told_at_;
  Instant look_at_;          // when the next SampleLink is due
  Mark posted_;              // a sample before the first byte, when the transfers were posted
  Instant first_at_;         // kMeasuring: when the first byte was seen
  std::vector<Mark> looks_;  // kMeasuring: all samples
  // Bytes between one of these begins and one of these ends count.
  std::vector<Mark> begins_, ends_;
  bool all_came_ = false;  // the transfer to this peer is over
};

// The memory of a transfer of a probe: a few MiB, which are the memory of each of its blocks.
// kSystem if there is no memory. The bytes are incompressible: otherwise a path that compresses
// data would look faster than it is.
Result<ring::Memory> probe_memory(const ring::Task& task);

}  // namespace pccl::peer
