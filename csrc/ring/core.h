// RingCore: decides which bytes go next, from where to where, for all operations in flight on this
// peer. Pure: it sees chunk headers and cursors, never a byte. Its Engine moves the bytes, or the
// simulator's does: the same class. Rules (DESIGN sections 6, 7; deadlock-freedom I1 to I6):
//  (1) a chunk leaves only against credit of the neighbour that has posted the same operation with
//      the same digest, or as part of a head start, which the neighbour keeps whatever happens
//      (head_start.h, core_early.cc);
//  (2) a link has lanes, which carry one chunk at a time each way: whichever is free, and is not to
//      rest, takes the next of the oldest operation that can send; one that cannot holds up no
//      other; the last ones leave on lanes that need no more than a round trip (lane_for_chunk);
//      on one machine one's own part does not leave ahead of what comes (Progress::go_in_step);
//  (3) nothing of an epoch leaves on a lane before both ends have said Open for it there; frames of
//      older epochs, and of operations that have ended here, are discarded;
//  (4) an ended operation is drained in the same step: landings revoked, the chunk being sent
//      withdrawn, then the saved bytes restored (abort) or dropped (commit), then OpDrained;
//  (5) what was on a link that went down is gone: its operations stay until they are ended, but
//      nothing more of them is sent or received, on a new link to that peer either;
//  (6) copies of an exchange need no credit but room in the link's window, or to be asked for; they
//      go before chunks, and one that comes too early is kept (exchange.h, core_exchange.cc).
// A chunk that the schedule does not expect is a protocol error of the link: FailLink.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/net/framing.h"
#include "csrc/ring/credits.h"
#include "csrc/ring/head_start.h"
#include "csrc/ring/op_table.h"
#include "csrc/ring/schedule.h"

namespace pccl::ring {

// ---- Events ----

struct EpochBegun {  // drops whatever is left of older epochs (all operations have ended by then)
  Epoch epoch;
  std::vector<PeerId> peers;  // the other members
};
// One connection of a link, counted from 0 as they come up here; both ends count for themselves.
struct LaneId {
  PeerId peer;
  uint32_t index = 0;
  friend auto operator<=>(const LaneId&, const LaneId&) = default;
};
struct LaneUp {  // with its first lane a link is up
  LaneId lane;
  bool local = false;  // the peer is on this machine
};
struct LaneWindow {  // as it is now
  LaneId lane;
  uint64_t bytes = 0;  // that congestion control lets be under way on it; 0: not known
};
struct LinkDown {  // with all its lanes
  PeerId peer;
};
struct LanesRest {  // these carry no further chunk of ours, all others do
  PeerId peer;
  protocol::LaneBits lanes = 0;  // never all that are up
};
struct OpPosted {
  Task task;
};
// kAgain: it will be posted again, without its first `keep` elements. These stay as they are until
// that ends; the rest is as after kAborted.
enum class Ending { kCommitted, kAborted, kAgain };
struct OpEnded {  // ignored if it was never posted here
  OpKey op;
  Ending ending = Ending::kAborted;
  uint64_t keep = 0;
};
// The master was told that it is done here: so are the other members.
struct OpDone {
  OpKey op;
};
struct FrameArrived {  // kOpen, kCredit, kWindow, kDone
  LaneId lane;
  net::FrameHeader header;
};
struct ChunkArriving {
  LaneId lane;
  net::FrameHeader header;
};
struct ChunkArrived {  // in the landing given last on this lane
  LaneId lane;
  bool valid = true;
};
struct ChunkSent {
  LaneId lane;
};
using Event = std::variant<EpochBegun, LaneUp, LaneWindow, LinkDown, LanesRest, OpPosted, OpEnded,
                           OpDone, FrameArrived, ChunkArriving, ChunkArrived, ChunkSent>;

// ---- Effects, in the order in which they must be carried out ----

struct SendFrame {
  LaneId lane;
  net::FrameHeader header;
};
struct SendChunk {
  LaneId lane;
  net::FrameHeader header;
  uint64_t handle;
  Unit unit;
};
struct SendCopy {  // of the own tensor of an exchange; no ChunkSent follows
  LaneId lane;
  net::FrameHeader header;
  uint64_t handle;
};
struct Land {  // answer to ChunkArriving
  LaneId lane;
  uint64_t handle;
  Unit unit;
  Action action;
};
// What is kept of an operation that was not posted here yet: its copy of an exchange, or a chunk.
inline constexpr uint32_t kEarlyCopy = UINT32_MAX;
struct EarlyId {
  OpKey op;
  uint32_t index = kEarlyCopy;
  friend auto operator<=>(const EarlyId&, const EarlyId&) = default;
};
struct LandEarly {  // another answer: kept until TakeEarly or DropEarly
  LaneId lane;
  EarlyId early;
  uint32_t bytes;
};
struct Discard {  // the third answer
  LaneId lane;
};
struct TakeEarly {  // what was kept of a peer's is the unit
  PeerId peer;
  EarlyId early;
  uint64_t handle;
  Unit unit;
  Action action;
};
struct DropEarly {
  PeerId peer;
  EarlyId early;
};
struct Combine {  // an exchange is complete: its result
  uint64_t handle;
};
struct Revoke {
  LaneId lane;
};
struct Withdraw {
  LaneId lane;
};
struct Restore {
  uint64_t handle;
  uint64_t from = 0;  // bytes before it stay as they are
};
struct Release {
  uint64_t handle;
};
struct Retain {  // instead of Release: its first bytes may have to be restored later
  uint64_t handle;
  uint64_t bytes;
  Epoch epoch;
  OpKey op;
};
struct OpProgressed {  // Task::keep: so many elements from its start are final here
  Epoch epoch;
  OpKey op;
  uint64_t finished = 0;
};
struct OpTransferred {  // everything received, everything sent
  Epoch epoch;
  OpKey op;
};
struct OpAgreed {  // it is done here and at all other members
  Epoch epoch;
  OpKey op;
};
struct OpDrained {  // no thread touches the tensor any more
  Epoch epoch;
  OpKey op;
};
struct FailLink {
  PeerId peer;
  std::string why;
};
using Effect = std::variant<SendFrame, SendChunk, SendCopy, Land, LandEarly, Discard, TakeEarly,
                            DropEarly, Combine, Revoke, Withdraw, Restore, Release, Retain,
                            OpProgressed, OpTransferred, OpAgreed, OpDrained, FailLink>;
// The caller's, reused: stepping allocates nothing in the steady state.
using Effects = std::vector<Effect>;

class RingCore {
 public:
  void step(const Event& event, Effects& effects);
  size_t operations_open() const { return operations_.size(); }
  // In which epoch it was posted, if it has not ended.
  std::optional<Epoch> posted(OpKey op);

 private:
  struct Passage {                   // a unit that is on its way on a lane
    Operation* operation = nullptr;  // null: none is,
    uint64_t unit = 0;
    std::optional<EarlyId> early{};  // or what is kept of one that was not posted here yet
    bool any() const { return operation != nullptr || early; }
  };
  struct Lane {
    Epoch said;   // the last Open that we sent
    Epoch heard;  // the last Open that came; may be newer than ours
    Passage landing, sending;
    uint64_t window = 0;  // see LaneWindow: of congestion control
  };
  struct Link {
    bool failed = false;  // FailLink was said: nothing counts until LinkDown
    bool local = false;   // to a peer on this machine
    std::vector<Lane> lanes;
    protocol::LaneBits resting = 0;
    uint32_t next = 0;  // the lane whose turn it is
    EarlyCredits early;
    HeadStart head_start;
    EarlyChunks early_chunks;
    SendQueue queue;
    // Of exchanges: what may leave unasked, what waits for that, and what came too early.
    struct Copy {
      uint64_t digest = 0;
      uint32_t place = 0, bytes = 0;
      bool here = false;
    };
    Window window{Window::kUnaskedBytes};
    Window asked{Window::kAskedBytes};
    std::deque<Operation*> unsent, unsent_asked;
    std::map<OpKey, Copy> copies;
  };

  void on(const EpochBegun& event, Effects& effects);
  void on(const LaneUp& event, Effects& effects);
  void on(const LaneWindow& event, Effects& effects);
  void on(const LinkDown& event, Effects& effects);
  void on(const LanesRest& event, Effects& effects);
  void on(const OpPosted& event, Effects& effects);
  void on(const OpEnded& event, Effects& effects);
  void on(const OpDone& event, Effects& effects);
  void on(const FrameArrived& event, Effects& effects);
  void on(const ChunkArriving& event, Effects& effects);
  void on(const ChunkArrived& event, Effects& effects);
  void on(const ChunkSent& event, Effects& effects);

  void on_open(LaneId lane, Link& link, const net::FrameHeader& header, Effects& effects);
  void on_credit(LaneId lane, Link& link, const net::FrameHeader& header, Effects& effects);
  void on_done(LaneId lane, Link& link, const net::FrameHeader& header, Effects& effects);
  // Why a chunk breaks a rule; empty if it does not. `landing` becomes what it is, and stays empty
  // when it is void.
  std::string judge(LaneId lane, Link& link, const net::FrameHeader& header, Passage& landing);
  // The same of a chunk of an operation that is in flight; else `id` becomes its unit's.
  static std::string judge_unit(const Operation& operation, const net::FrameHeader& header,
                                uint64_t& id);
  void chunk_arrived(Operation& operation, uint64_t id, Effects& effects);

  // ---- What comes before it is asked for: core_early.cc ----
  void start_ahead(Operation& operation, Link& downstream);
  std::string judge_early(Link& link, const net::FrameHeader& header, Passage& landing);
  void early_arrived(LaneId lane, Link& link, EarlyId early, bool valid, Effects& effects);
  void take_all_early(Operation& operation, Effects& effects);
  void take_early(PeerId peer, Link& link, Operation& operation, uint32_t index, Effects& effects);
  void drop_early(PeerId peer, Link& link, OpKey op, Effects& effects);

  // ---- Exchanges: core_exchange.cc ----
  void begin_exchange(Operation& operation, Effects& effects);
  void drain_exchange(const Operation& operation, Effects& effects);
  std::string judge_copy(LaneId lane, Link& link, const net::FrameHeader& header, Passage& landing,
                         Effects& effects);
  void copy_arrived(LaneId lane, Link& link, const Passage& landed, Effects& effects);
  void take_copy(PeerId peer, Link& link, Operation& operation, Effects& effects);
  void drop_copy(PeerId peer, Link& link, OpKey op, Effects& effects);
  void queue_copies(PeerId peer, Link& link, Effects& effects);  // all that has not been sent
  void serve_copies(PeerId peer, Link& link, Effects& effects);
  bool send_copy(PeerId peer, Link& link, Operation& operation, bool asked, Effects& effects);
  void on_asked(PeerId peer, Link& link, Operation& operation, Effects& effects);
  void on_window(LaneId lane, Link& link, const net::FrameHeader& header, Effects& effects);
  void ask(PeerId peer, Link& link, Operation& operation, Effects& effects);
  void ask_all(PeerId peer, Link& link, Effects& effects);
  void copy_taken(PeerId peer, Link& link, Window& window, uint64_t bytes, Effects& effects);
  void combine_if_here(Operation& operation, Effects& effects);

  Link* find_link(PeerId peer);
  bool ready(const Link& link, const Lane& lane) const;
  void say_open(LaneId id, Link& link, Effects& effects);
  void grant(Operation& operation, Effects& effects);
  bool rests(const Link& link, uint32_t lane) const;
  std::optional<uint32_t> free_lane(const Link& link) const;
  std::optional<uint32_t> lane_for_chunk(const Link& link) const;
  void enqueue(Operation& operation, Effects& effects);
  void serve(PeerId peer, Link& link, Effects& effects);
  void tell_progress(Operation& operation, Effects& effects);
  void tell_if_transferred(Operation& operation, Effects& effects);
  void tell_if_agreed(Operation& operation, Effects& effects);
  void drain(Operation& operation, const OpEnded& end, Effects& effects);
  void fail(PeerId peer, Link& link, std::string why, Effects& effects);

  Epoch epoch_;
  std::vector<PeerId> members_;
  std::map<PeerId, Link> links_;  // those that are up
  OpTable operations_;
  Known known_;  // in this epoch
};

}  // namespace pccl::ring
