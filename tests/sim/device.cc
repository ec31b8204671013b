#include "tests/sim/device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::sim {
namespace {

constexpr Duration kPollMin = std::chrono::microseconds(50);
constexpr Duration kPollMax = std::chrono::milliseconds(1);
constexpr uint32_t kDelaysMax[] = {0, 5, 100};  // in polls

}  // namespace

Device::Device(EventLoop& event_loop, uint64_t seed, Callbacks callbacks)
    : event_loop_(event_loop),
      random_(seed),
      callbacks_(std::move(callbacks)),
      device_({.seed = seed, .delay_max = kDelaysMax[random_.below(std::size(kDelaysMax))]}, move) {
}

Device::~Device() {
  *alive_ = false;
  for (auto& [handle, staged] : operations_) {
    if (!staged->result) staged->staging.end(false);
    while (!staged->staging.over()) staged->staging.poll();
  }
}

void Device::move(const memory::DeviceCopy& copy, memory::FakeDevice::Direction direction) {
  std::byte* const device = static_cast<Memory&>(*copy.device).bytes.data();
  const bool out = direction == memory::FakeDevice::Direction::kOut;
  std::memcpy(out ? copy.host.data() : device, out ? device : copy.host.data(), copy.host.size());
}

void Device::called(peer::OpRequest& request, const ring::Memory& memory) {
  if (random_.once_in(3)) return;  // on the CPU
  auto staged = std::make_unique<Staged>(device_);
  const auto stage = [&](std::span<std::byte> span, bool out, bool in) {
    auto device = std::make_shared<Memory>();
    device->bytes.assign(span.begin(), span.end());
    device->before = device->bytes;
    const std::span<std::byte> pinned = staged->staging.pin(span.size()).value();
    staged->application.push_back(span);
    staged->pinned.push_back(pinned);
    staged->device.push_back(device);
    if (out && !span.empty()) staged->staging.add_out({device, pinned});
    if (in && !span.empty()) staged->staging.add_in({device, pinned});
  };
  for (const std::span<std::byte> span : memory.spans) {
    stage(span, request.kind != protocol::OpKind::kRecv, request.kind != protocol::OpKind::kSend);
  }
  staged->written = memory.spans.size();
  for (const std::span<const std::byte> input : memory.inputs)
    stage({const_cast<std::byte*>(input.data()), input.size()}, true, false);  // it is only read
  const Status status = staged->staging.begin();
  PCCL_ASSERT(status.ok());
  request.parked = staged->staging.parked();
  operations_.emplace(request.handle, std::move(staged));
  poll_soon(request.handle);
}

void Device::replace(peer::Handle handle, ring::Memory& memory) const {
  const auto at = operations_.find(handle);
  if (at == operations_.end()) return;
  const Staged& staged = *at->second;
  size_t index = 0;
  for (std::span<std::byte>& span : memory.spans) span = staged.pinned[index++];
  for (std::span<const std::byte>& input : memory.inputs) input = staged.pinned[index++];
}

bool Device::finish(const peer::FinishOp& result) {
  const auto at = operations_.find(result.handle);
  if (at == operations_.end()) return false;
  Staged& staged = *at->second;
  PCCL_ASSERT(!staged.result);
  staged.result = result;
  staged.staging.end(result.status.ok());
  poll_soon(result.handle);
  if (!result.status.ok()) callbacks_.on_finished(result);
  return true;
}

// The application hears of each end, and what it does then may come back to here.
void Device::end() {
  const auto next = [this] {
    return std::find_if(operations_.begin(), operations_.end(),
                        [](const auto& entry) { return entry.second->result.has_value(); });
  };
  for (auto at = next(); at != operations_.end(); at = next()) poll(at->first);
}

void Device::poll_soon(peer::Handle handle) {
  event_loop_.after(random_.duration(kPollMin, kPollMax), [this, handle, alive = alive_] {
    if (*alive) poll(handle);
  });
}

void Device::poll(peer::Handle handle) {
  const auto at = operations_.find(handle);
  if (at == operations_.end()) return;
  Staged& staged = *at->second;
  const memory::Staging::News news = staged.staging.poll();
  if (news.staged) callbacks_.on_staged({handle, *news.staged});
  if (!staged.staging.over()) {
    if (!staged.staging.waits_for_verdict()) poll_soon(handle);
    return;
  }
  const std::unique_ptr<Staged> over = std::move(at->second);
  operations_.erase(at);
  for (size_t i = 0; i < over->device.size(); ++i) {
    const Memory& memory = *over->device[i];
    if (news.finished && i < over->written && !over->application[i].empty()) {
      std::copy(memory.bytes.begin(), memory.bytes.end(), over->application[i].begin());
    } else if (memory.bytes != memory.before) {
      callbacks_.on_violation("P2 device memory has changed: it is an input, or the call failed");
    }
  }
  if (news.finished) callbacks_.on_finished(*over->result);
}

}  // namespace pccl::sim
