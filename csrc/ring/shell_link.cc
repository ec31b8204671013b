#include "csrc/ring/shell_link.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/log.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"

namespace pccl::ring {

using net::FrameHeader;
using net::FrameType;

namespace {

// Two chunks. With all that the system allows, a few MiB, 64 MiB among four ranks on two cores take
// 6 % longer.
constexpr uint32_t kHeldBytesCrowded = 512u << 10;

}  // namespace

ShellLink::ShellLink(net::Loop& loop, net::Socket socket, const Identity& identity, Target target,
                     std::string address, Callbacks callbacks)
    : identity_(identity),
      dialled_(static_cast<bool>(target.peer)),
      callbacks_(std::move(callbacks)),
      address_(std::move(address)),
      target_(target),
      hello_timer_(loop, [this] {
        end({Code::kSystem, address_ + ": it did not introduce itself in time", target_.peer},
            LinkFault::kNoAnswer);
      }) {
  lane_ = std::make_unique<net::Lane>(
      loop, std::move(socket), *this,
      net::Lane::Callbacks{.on_sent =
                               [this] {
                                 sink_->chunk_sent();
                                 if (lane_ != nullptr && on_chunk_sent_) on_chunk_sent_(*this);
                               },
                           .on_failed =
                               [this](Status why) {
                                 const bool foreign = why.code == Code::kProtocol;
                                 end(std::move(why),
                                     foreign ? LinkFault::kAnotherProgram : LinkFault::kOther);
                               }});
  hello_timer_.arm(monotonic_now() + protocol::kHelloTimeout);
  if (dialled_) lane_->send(hello(FrameType::kHello));
}

FrameHeader ShellLink::hello(FrameType type) const {
  FrameHeader header;
  header.type = type;
  header.epoch = Epoch{identity_.run_id};
  header.op.tag = TagId{identity_.self.value};
  header.digest = target_.peer.value;
  header.value = identity_.machine;
  header.slice = protocol::kVersion;
  header.block = target_.serial;
  header.round = target_.further ? 1 : 0;
  return header;
}

void ShellLink::introduced_by(const FrameHeader& header) {
  std::string why = refusal(header);
  if (!why.empty()) {
    return end({Code::kProtocol, address_ + ": " + why, target_.peer}, LinkFault::kAnotherPeer);
  }
  target_ = {PeerId{header.op.tag.value}, header.block, header.round == 1};
  local_ = header.value == identity_.machine && identity_.machine != 0;
  hello_timer_.disarm();
  callbacks_.on_introduced(*this);
}

// A stranger learns nothing from us: it is hung up on.
std::string ShellLink::refusal(const FrameHeader& header) const {
  if (header.type != (dialled_ ? FrameType::kHelloOk : FrameType::kHello))
    return "it did not introduce itself";
  if (header.epoch.value != identity_.run_id) return "it belongs to another run";
  if (header.slice != protocol::kVersion) {
    return "it speaks version " + std::to_string(header.slice) + " of the protocol, this peer " +
           std::to_string(protocol::kVersion) + ": install the same pccl on both";
  }
  if (header.digest != identity_.self.value)
    return "it looks for peer " + text(PeerId{header.digest});
  const PeerId claimed{header.op.tag.value};
  if (!claimed || claimed == identity_.self || (dialled_ && claimed != target_.peer)) {
    return "it says that it is peer " + text(claimed);
  }
  if (header.block == 0 || (dialled_ && header.block != target_.serial)) {
    return "it speaks of connection " + std::to_string(header.block);
  }
  if (header.round > 1 || (dialled_ && (header.round == 1) != target_.further)) {
    return "it speaks of lane " + std::to_string(header.round);
  }
  return {};
}

void ShellLink::join(Engine& engine) {
  PCCL_ASSERT(!joined_ && lane_ != nullptr);
  if (!dialled_) lane_->send(hello(FrameType::kHelloOk));
  lane_->set_local(local_);
  joined_ = true;
  sink_ = &engine.lane_up(target_.peer, *this);
}

void ShellLink::end(Status why, LinkFault fault) {
  if (lane_ == nullptr) return;
  fault_ = fault;
  close();
  callbacks_.on_ended(*this, std::move(why));
}

void ShellLink::close() {
  hello_timer_.disarm();
  sink_ = nullptr;
  lane_.reset();
}

void ShellLink::ping(uint64_t number) {
  FrameHeader header;
  header.type = FrameType::kPing;
  header.value = number;
  send(header);
  silence_.said();
}

bool ShellLink::tick() {
  if (lane_ == nullptr) return true;
  silence_.tick();
  if (lane_->take_heard()) silence_.heard();
  if (silence_.ping_due()) ping();
  return !silence_.too_long();
}

PathInfo ShellLink::path() const { return lane_ == nullptr ? PathInfo{} : lane_->socket().path(); }
uint64_t ShellLink::buffers() const { return lane_ == nullptr ? 0 : lane_->socket().buffers(); }

void ShellLink::suit(net::Way way, const std::string& congestion) {
  if (lane_ == nullptr) return;
  const net::Socket& socket = lane_->socket();
  if (!congestion.empty() && !socket.set_congestion(congestion)) {
    log(LogLevel::kWarning, address_ + ": the system refuses congestion control " + congestion +
                                ", and keeps " + socket.congestion());
  }
  socket.suit(way, congestion.empty());
  far_ = way == net::Way::kLong;
  if (far_ && congestion.empty()) lane_->keep_window();
}

void ShellLink::crowd(bool crowded) {
  if (lane_ == nullptr || !local_ || far_) return;
  lane_->socket().hold_at_most(crowded ? kHeldBytesCrowded : 0);
  lane_->set_alone(!crowded);
}

void ShellLink::watch(std::function<void(const ShellLink&)> on_chunk_sent) {
  on_chunk_sent_ = std::move(on_chunk_sent);
}

net::Lane::Counters ShellLink::counters() const {
  return lane_ == nullptr ? net::Lane::Counters{} : lane_->counters();
}

// ---- Port ----

void ShellLink::send(const FrameHeader& header) {
  if (lane_ != nullptr) lane_->send(header);
}
void ShellLink::send_copy(const FrameHeader& header, std::span<const std::byte> payload) {
  if (lane_ != nullptr) lane_->send_copy(header, payload);
}
void ShellLink::send_chunk(const FrameHeader& header, std::span<const std::byte> payload) {
  if (lane_ != nullptr) lane_->send_chunk(header, payload);
}
void ShellLink::withdraw() {
  if (lane_ != nullptr) lane_->withdraw();
}
void ShellLink::revoke() {
  if (lane_ != nullptr) lane_->revoke();
}

// ---- FrameSink ----

void ShellLink::on_frame(const FrameHeader& header) {
  if (sink_ == nullptr) return introduced_by(header);
  if (header.type == FrameType::kPong) {
    last_pong_ = std::max(last_pong_, header.value);  // 0 of an ordinary one; numbers grow
    return;
  }
  if (header.type != FrameType::kPing) return sink_->on_frame(header);
  FrameHeader pong;
  pong.type = FrameType::kPong;
  pong.value = header.value;
  send(pong);
}

std::span<std::byte> ShellLink::on_chunk(const FrameHeader& header) {
  if (sink_ != nullptr) return sink_->on_chunk(header);
  introduced_by(header);
  return {};
}
void ShellLink::on_piece(size_t at, size_t bytes) { sink_->on_piece(at, bytes); }
void ShellLink::on_chunk_end(bool valid) { sink_->on_chunk_end(valid); }

}  // namespace pccl::ring
