#include "csrc/ring/shell_link.h"

#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/log.h"
#include "csrc/net/address.h"
#include "csrc/protocol/limits.h"

namespace pccl::ring {

using net::FrameHeader;
using net::FrameType;

namespace {

// Two chunks. With the system's own limit, a few MiB, 64 MiB among four ranks on two cores take 6 %
// longer.
constexpr uint32_t kHeldBytesContended = 512u << 10;

}  // namespace

ShellLink::ShellLink(net::Loop& loop, net::Socket socket, bool dialled, Callbacks callbacks)
    : dialled_(dialled), callbacks_(std::move(callbacks)), address_(socket.peer_host()) {
  lane_ = std::make_unique<net::Lane>(
      loop, std::move(socket), *this,
      net::Lane::Callbacks{.on_sent =
                               [this] {
                                 sink_->chunk_sent();
                                 if (lane_ != nullptr && on_chunk_sent_) on_chunk_sent_(*this);
                               },
                           .on_failed =
                               [this](Status why) {
                                 if (lane_ == nullptr) return;
                                 close();
                                 const bool foreign = why.code == Code::kProtocol;
                                 callbacks_.on_failed(
                                     std::move(why),
                                     foreign ? LinkFault::kAnotherProgram : LinkFault::kOther);
                               }});
}

void ShellLink::send_hello(bool answer, const protocol::LaneHello& hello) {
  send(net::hello_frame(answer ? FrameType::kHelloOk : FrameType::kHello, hello));
}

void ShellLink::join(Engine& engine, PeerId peer, bool local) {
  PCCL_ASSERT(sink_ == nullptr && lane_ != nullptr);
  local_ = local;
  lane_->set_local(local);
  sink_ = &engine.lane_up(peer, *this);
}

void ShellLink::close() {
  sink_ = nullptr;
  lane_.reset();
}

std::string ShellLink::ends() const {
  const int fd = lane_->socket().fd();
  const net::Address own = net::local_address(fd), other = net::peer_address(fd);
  return text(Endpoint{own.host(), own.port()}) + " and " +
         text(Endpoint{other.host(), other.port()});
}

PathInfo ShellLink::path() const { return lane_ == nullptr ? PathInfo{} : lane_->socket().path(); }
uint64_t ShellLink::buffers() const { return lane_ == nullptr ? 0 : lane_->socket().buffers(); }

void ShellLink::tune(net::PathClass way, const std::string& congestion) {
  if (lane_ == nullptr) return;
  const net::Socket& socket = lane_->socket();
  if (!congestion.empty() && !socket.set_congestion(congestion)) {
    log(LogLevel::kWarning, address_ + ": the system refuses congestion control " + congestion +
                                ", and keeps " + socket.congestion());
  }
  socket.tune(way, congestion.empty());
  far_ = way == net::PathClass::kWan;
  if (far_ && congestion.empty()) lane_->keep_window();
}

void ShellLink::set_contended(bool contended) {
  if (lane_ == nullptr || !local_ || far_) return;
  lane_->socket().hold_at_most(contended ? kHeldBytesContended : 0);
  lane_->set_alone(!contended);
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
  if (sink_ == nullptr) {
    const FrameType expected = dialled_ ? FrameType::kHelloOk : FrameType::kHello;
    return callbacks_.on_hello(net::hello_in(expected, header));
  }
  if (header.type == FrameType::kPong) return callbacks_.on_pong(header.value);
  if (header.type != FrameType::kPing) return sink_->on_frame(header);
  FrameHeader pong;
  pong.type = FrameType::kPong;
  pong.value = header.value;
  send(pong);
}

std::span<std::byte> ShellLink::on_chunk(const FrameHeader& header) {
  if (sink_ != nullptr) return sink_->on_chunk(header);
  callbacks_.on_hello({});
  return {};
}
void ShellLink::on_piece(size_t at, size_t bytes) { sink_->on_piece(at, bytes); }
void ShellLink::on_chunk_end(bool valid) { sink_->on_chunk_end(valid); }

}  // namespace pccl::ring
