#include "csrc/link/shell/lane_connection.h"

#include <utility>

#include "csrc/base/assert.h"
#include "csrc/net/address.h"
#include "csrc/protocol/limits.h"

namespace pccl::link {

using net::FrameHeader;
using net::FrameType;

namespace {

// Bytes that the socket of a contended lane may hold: two chunks. With the system's own limit (a
// few MiB), an operation with 64 MiB among four ranks on two cores takes 6 % longer.
constexpr uint32_t kHeldBytesContended = 512u << 10;

// The fault that is reported to others for an error of the connection.
LinkFault fault_of(Code code) {
  if (code == Code::kProtocol) return LinkFault::kAnotherProgram;
  return code == Code::kAuthentication ? LinkFault::kAnotherPeer : LinkFault::kOther;
}

}  // namespace

LaneConnection::LaneConnection(net::Loop& loop, net::Channel channel, bool dialled,
                               Callbacks callbacks)
    : dialled_(dialled), callbacks_(std::move(callbacks)), address_(channel.socket().peer_host()) {
  lane_ = std::make_unique<net::Lane>(
      loop, std::move(channel), *this,
      net::Lane::Callbacks{.on_sent =
                               [this] {
                                 sink_->chunk_sent();
                                 if (lane_ != nullptr && on_chunk_sent_) on_chunk_sent_(*this);
                               },
                           .on_failed =
                               [this](Status why) {
                                 if (lane_ == nullptr) return;
                                 close();
                                 const LinkFault fault = fault_of(why.code);
                                 callbacks_.on_failed(std::move(why), fault);
                               },
                           .on_established =
                               [this] {
                                 if (lane_ != nullptr) callbacks_.on_established();
                               },
                           .on_proven =
                               [this] {
                                 if (lane_ != nullptr) callbacks_.on_proven();
                               }});
}

void LaneConnection::send_hello(bool answer, const protocol::LaneHello& hello) {
  PCCL_ASSERT(sink_ == nullptr);
  send(net::hello_frame(answer ? FrameType::kHelloOk : FrameType::kHello, hello));
}

void LaneConnection::open_early(const LaneUser& user, PeerId peer) {
  PCCL_ASSERT(sink_ == nullptr && !opened_);
  const auto header = user.open_frame(peer);
  if (!header) return;
  send(*header);
  opened_ = header->epoch;
}

void LaneConnection::join(LaneUser& user, PeerId peer, bool same_machine) {
  PCCL_ASSERT(sink_ == nullptr && lane_ != nullptr);
  same_machine_ = same_machine;
  lane_->set_local(same_machine);
  sink_ = &user.lane_up(peer, *this, opened_);
}

void LaneConnection::close() {
  sink_ = nullptr;
  lane_.reset();
}

const std::string& LaneConnection::identity() const {
  PCCL_ASSERT(lane_ != nullptr);
  return lane_->identity();
}

std::string LaneConnection::ends() const {
  PCCL_ASSERT(lane_ != nullptr);
  const int fd = lane_->socket().fd();
  const net::Address own = net::local_address(fd), other = net::peer_address(fd);
  return text(Endpoint{own.host(), own.port()}) + " and " +
         text(Endpoint{other.host(), other.port()});
}

PathInfo LaneConnection::path() const {
  return lane_ == nullptr ? PathInfo{} : lane_->socket().path();
}
uint64_t LaneConnection::buffers() const {
  return lane_ == nullptr ? 0 : lane_->socket().buffers();
}

std::string LaneConnection::tune(net::PathClass rtt, const std::string& congestion) {
  tuned_ = true;
  if (lane_ == nullptr) return {};
  wan_ = rtt == net::PathClass::kWan;
  if (lane_->tune(rtt, congestion)) return {};
  return address_ + ": the system refuses congestion control " + congestion + ", and keeps " +
         lane_->socket().congestion();
}

void LaneConnection::set_contended(bool contended) {
  PCCL_ASSERT(tuned_);
  if (lane_ == nullptr || !same_machine_ || wan_) return;
  lane_->socket().hold_at_most(contended ? kHeldBytesContended : 0);
  lane_->set_alone(!contended);
}

void LaneConnection::limit_unsent(uint64_t bytes) {
  PCCL_ASSERT(tuned_);
  if (lane_ != nullptr) lane_->socket().limit_unsent(bytes);
}

void LaneConnection::watch(std::function<void(const LaneConnection&)> on_chunk_sent) {
  PCCL_ASSERT(!on_chunk_sent_);
  on_chunk_sent_ = std::move(on_chunk_sent);
}

net::Lane::Counters LaneConnection::counters() const {
  return lane_ == nullptr ? net::Lane::Counters{} : lane_->counters();
}

// ---- Port ----

void LaneConnection::send(const FrameHeader& header) {
  if (lane_ != nullptr) lane_->send(header);
}
void LaneConnection::send_copy(const FrameHeader& header, std::span<const std::byte> payload) {
  if (lane_ != nullptr) lane_->send_copy(header, payload);
}
void LaneConnection::send_chunk(const FrameHeader& header, std::span<const std::byte> payload) {
  if (lane_ != nullptr) lane_->send_chunk(header, payload);
}
void LaneConnection::withdraw() {
  if (lane_ != nullptr) lane_->withdraw();
}
void LaneConnection::revoke() {
  if (lane_ != nullptr) lane_->revoke();
}

// ---- FrameSink ----

void LaneConnection::on_frame(const FrameHeader& header) {
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

std::span<std::byte> LaneConnection::on_chunk(const FrameHeader& header) {
  if (sink_ != nullptr) return sink_->on_chunk(header);
  callbacks_.on_hello({});
  return {};
}
void LaneConnection::on_piece(size_t at, size_t bytes) { sink_->on_piece(at, bytes); }
void LaneConnection::on_chunk_end(bool valid) { sink_->on_chunk_end(valid); }

}  // namespace pccl::link
