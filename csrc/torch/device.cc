#include "csrc/torch/device.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "csrc/base/mutex.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/kernels_library.h"

namespace pccl::torch_layer {
namespace {

using memory::DeviceCopies;
using memory::DeviceEventPtr;

// Autograd must not see these copies.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

// A function of the CUDA runtime that torch has loaded; null if it has none.
template <typename Function>
Function cuda(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}
constexpr unsigned kNonBlocking = 1;  // cudaStreamNonBlocking: no waiting for the default stream
constexpr int kCaptureRelaxed = 2;    // cudaStreamCaptureModeRelaxed

void exchange_capture_mode(int* mode) {
  const auto exchange = cuda<int (*)(int*)>("cudaThreadExchangeStreamCaptureMode");
  if (exchange != nullptr) exchange(mode);
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

Status failed(const char* what, c10::Device device, const std::exception& error) {
  return {Code::kSystem, c10::str(what, " ", device, ": ", first_line(error)), {}};
}

class Pinned : public memory::PinnedMemory {
 public:
  explicit Pinned(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  std::span<std::byte> bytes() override {
    return {static_cast<std::byte*>(tensor_.mutable_data_ptr()), tensor_.nbytes()};
  }

 private:
  const at::Tensor tensor_;
};

class TorchEvent : public memory::DeviceEvent {
 public:
  explicit TorchEvent(const c10::Stream& stream) : event_(stream.device_type()) {
    event_.record(stream);
  }
  Result<bool> reached() override {
    try {
      return event_.query();
    } catch (const std::exception& error) {
      return failed("a copy of pccl failed on", event_.device(), error);
    }
  }
  void block(const c10::Stream& stream) const { event_.block(stream); }

 private:
  c10::Event event_;
};

// The hashes of one launch, and the memory that the launch uses.
class TorchHashes : public memory::DeviceHashes {
 public:
  TorchHashes(const KernelsLibrary& library, std::vector<memory::DeviceBytesPtr> what,
              at::Tensor device_workspace, std::unique_ptr<memory::PinnedMemory> host_workspace)
      : library_(library),
        what_(std::move(what)),
        device_workspace_(std::move(device_workspace)),
        host_workspace_(std::move(host_workspace)) {}

  // Gives the work to `stream`.
  Status start(const c10::Stream& stream, void* handle);
  Result<bool> reached() override { return done_->reached(); }
  std::vector<uint64_t> values() override {
    std::vector<uint64_t> values(what_.size());
    library_.hash_values(host_workspace_->bytes().data(), values.size(), values.data());
    return values;
  }

 private:
  const KernelsLibrary& library_;
  const std::vector<memory::DeviceBytesPtr> what_;
  const at::Tensor device_workspace_;
  const std::unique_ptr<memory::PinnedMemory> host_workspace_;
  std::optional<TorchEvent> done_;
};

Status TorchHashes::start(const c10::Stream& stream, void* handle) {
  std::vector<pccl_cuda_span> spans;
  for (const memory::DeviceBytesPtr& one : what_) {
    const at::Tensor& bytes = static_cast<const TensorBytes&>(*one).bytes;
    spans.push_back({bytes.const_data_ptr(), bytes.nbytes()});
  }
  const int status = library_.hash(spans.data(), spans.size(), device_workspace_.mutable_data_ptr(),
                                   host_workspace_->bytes().data(), stream.device_index(), handle);
  if (status != 0) {
    return {Code::kSystem,
            c10::str("pccl cannot hash tensors on ", stream.device(), ": ",
                     library_.error_text(status)),
            {}};
  }
  done_.emplace(stream);
  return {};
}

class TorchDevice : public memory::Device {
 public:
  explicit TorchDevice(c10::Device device)
      : device_(device),
        impl_(device.type()),
        out_(make_stream()),
        in_(make_stream()),
        free_(make_stream()) {}

  Result<std::unique_ptr<memory::PinnedMemory>> pinned(size_t bytes) override;
  bool capturing() override;
  Result<DeviceEventPtr> mark() override;
  Result<DeviceEventPtr> copy_out(const DeviceEventPtr& mark, const DeviceCopies& copies) override {
    return copy(mark ? out_ : free_, mark, copies, true);
  }
  Result<DeviceEventPtr> copy_in(const DeviceEventPtr& mark, const DeviceCopies& copies) override {
    return copy(mark ? in_ : free_, mark, copies, false);
  }
  Result<std::unique_ptr<memory::DeviceHashes>> hash(
      const std::vector<memory::DeviceBytesPtr>& what) override;

 private:
  c10::Stream make_stream() const;
  Result<DeviceEventPtr> copy(const c10::Stream& stream, const DeviceEventPtr& mark,
                              const DeviceCopies& copies, bool out);
  void wait_for(const c10::Stream& stream);

  const c10::Device device_;
  const c10::impl::VirtualGuardImpl impl_;
  const c10::Stream out_, in_;
  const c10::Stream free_;  // for work that waits for no mark
};

// Makes a stream with the highest priority, which is the lowest number: its copies are short, and a
// whole group waits for them.
c10::Stream TorchDevice::make_stream() const {
  const auto range = cuda<int (*)(int*, int*)>("cudaDeviceGetStreamPriorityRange");
  const auto create = cuda<int (*)(void**, unsigned, int)>("cudaStreamCreateWithPriority");
  if (range == nullptr || create == nullptr) {
    raise({Code::kSystem, c10::str("pccl finds no CUDA runtime for tensors on ", device_), {}});
  }
  const c10::OptionalDeviceGuard guard(device_);
  int least = 0, greatest = 0;
  void* made = nullptr;
  int error = range(&least, &greatest);
  if (error == 0) error = create(&made, kNonBlocking, greatest);
  if (error != 0) {
    raise({Code::kSystem,
           c10::str("pccl cannot make a stream on ", device_, ": CUDA error ", error),
           {}});
  }
  // torch uses the address of a stream that it has not made as the id of the stream.
  const c10::Stream stream(c10::Stream::UNSAFE, device_, reinterpret_cast<c10::StreamId>(made));
  if (impl_.getStreamNativeHandle(stream) != made) {
    raise({Code::kSystem,
           "this release of torch names streams in a way that pccl does not know",
           {}});
  }
  return stream;
}

Result<std::unique_ptr<memory::PinnedMemory>> TorchDevice::pinned(size_t bytes) {
  try {
    const auto options = at::TensorOptions().dtype(at::kByte).pinned_memory(true);
    return std::unique_ptr<memory::PinnedMemory>(
        std::make_unique<Pinned>(at::empty({static_cast<int64_t>(bytes)}, options)));
  } catch (const std::exception& error) {
    return Status{Code::kSystem,
                  "no " + std::to_string(bytes) +
                      " bytes of pinned host memory for the tensors: " + first_line(error),
                  {}};
  }
}

bool TorchDevice::capturing() {
  const auto is_capturing = cuda<int (*)(void*, int*)>("cudaStreamIsCapturing");
  int status = 0;  // cudaStreamCaptureStatusNone
  if (is_capturing == nullptr) return false;
  const int error = is_capturing(impl_.getStreamNativeHandle(impl_.getStream(device_)), &status);
  if (error == 0) return status != 0;
  // While another stream captures, CUDA returns an error for the default stream. The error is
  // cleared here: otherwise torch would report it for its next kernel.
  if (const auto forget = cuda<int (*)()>("cudaGetLastError"); forget != nullptr) forget();
  return false;
}

Result<DeviceEventPtr> TorchDevice::mark() {
  try {
    return DeviceEventPtr(std::make_shared<TorchEvent>(impl_.getStream(device_)));
  } catch (const std::exception& error) {
    return failed("pccl cannot record an event on", device_, error);
  }
}

Result<DeviceEventPtr> TorchDevice::copy(const c10::Stream& stream, const DeviceEventPtr& mark,
                                         const DeviceCopies& copies, bool out) {
  try {
    const BelowAutograd below;
    const c10::StreamGuard on_stream(stream);
    if (mark != nullptr) static_cast<const TorchEvent&>(*mark).block(stream);
    for (const memory::DeviceCopy& one : copies) {
      const auto& tensor = static_cast<const TensorMemory&>(*one.device);
      if (out) {
        copy_to_host(tensor, one.host, true);
      } else {
        copy_from_host(one.host, tensor, true);
      }
    }
    return DeviceEventPtr(std::make_shared<TorchEvent>(stream));
  } catch (const std::exception& error) {
    const Status status = failed("pccl cannot copy tensors on", device_, error);
    wait_for(stream);
    return status;
  }
}

// Waits, after a failure, until no copy that was begun runs any more.
void TorchDevice::wait_for(const c10::Stream& stream) {
  try {
    stream.synchronize();
  } catch (const std::exception&) {  // the device is lost: it does nothing any more
  }
}

Result<std::unique_ptr<memory::DeviceHashes>> TorchDevice::hash(
    const std::vector<memory::DeviceBytesPtr>& what) {
  const KernelsLibrary& library = kernels_library();
  if (!library.loaded()) return std::unique_ptr<memory::DeviceHashes>();
  const size_t bytes = library.hash_workspace(what.size());
  Result<std::unique_ptr<memory::PinnedMemory>> host = pinned(bytes);
  if (!host.ok()) return host.status();
  try {
    const BelowAutograd below;
    const c10::StreamGuard on_stream(free_);  // the workspace belongs to it
    auto hashes = std::make_unique<TorchHashes>(
        library, what,
        at::empty({static_cast<int64_t>(bytes)},
                  at::TensorOptions().dtype(at::kByte).device(device_)),
        std::move(host.value()));
    Status status = hashes->start(free_, impl_.getStreamNativeHandle(free_));
    if (status.ok()) return std::unique_ptr<memory::DeviceHashes>(std::move(hashes));
    wait_for(free_);
    return status;
  } catch (const std::exception& error) {
    const Status status = failed("pccl cannot hash tensors on", device_, error);
    wait_for(free_);
    return status;
  }
}

struct Devices {
  Mutex mutex;
  std::map<c10::DeviceIndex, std::unique_ptr<TorchDevice>> made PCCL_GUARDED_BY(mutex);
  std::shared_ptr<memory::Device> stand_in PCCL_GUARDED_BY(mutex);
};
Devices* const g_devices = new Devices;  // never destroyed: CUDA may be gone when the process ends

at::Tensor host_tensor(std::byte* data, const at::Tensor& like) {
  return at::from_blob(data, like.sizes(),
                       at::TensorOptions().dtype(like.scalar_type()).device(at::kCPU));
}

}  // namespace

TensorMemory::TensorMemory(const at::Tensor& whole, int64_t part_count, size_t part_pitch)
    : tensor(whole.detach()), storage(whole.storage()), parts(part_count), pitch(part_pitch) {}

TensorBytes::TensorBytes(const at::Tensor& whole)
    : bytes(at::for_blob(whole.mutable_data_ptr(), {static_cast<int64_t>(whole.nbytes())})
                .deleter([memory = whole.storage()](void*) {})
                .options(whole.options().dtype(at::kByte))
                .target_device(whole.device())
                .make_tensor()) {}

std::shared_ptr<memory::DeviceMemory> TensorBytes::part(size_t offset, size_t count) const {
  return std::make_shared<TensorMemory>(
      bytes.narrow(0, static_cast<int64_t>(offset), static_cast<int64_t>(count)));
}

void copy_to_host(const TensorMemory& from, std::span<std::byte> to, bool background) {
  PCCL_ASSERT(from.parts == 1);
  at::Tensor source = from.tensor;
  // Resolves a lazy conjugation or negation on the device. Otherwise the host would apply it after
  // the copy was begun, perhaps before the bytes are there.
  if (source._is_zerotensor()) source = at::zeros(source.sizes(), source.options());
  source = source.resolve_conj().resolve_neg();
  host_tensor(to.data(), source).copy_(source, background);
}

void copy_from_host(std::span<std::byte> from, const TensorMemory& to, bool background) {
  if (to.parts == 1) {
    to.tensor.copy_(host_tensor(from.data(), to.tensor), background);
    return;
  }
  const bool direct = to.tensor.is_contiguous() && !to.tensor.is_conj() && !to.tensor.is_neg();
  const at::Tensor whole =
      direct ? to.tensor
             : at::empty(to.tensor.sizes(),
                         to.tensor.options().memory_format(at::MemoryFormat::Contiguous));
  const at::Tensor rows = whole.view({to.parts, whole.numel() / to.parts});
  for (int64_t part = 0; part < to.parts; ++part) {
    const at::Tensor row = rows.select(0, part);
    row.copy_(host_tensor(from.data() + static_cast<size_t>(part) * to.pitch, row), background);
  }
  if (!direct) to.tensor.copy_(whole, background);
}

memory::Device& device_of(c10::Device device) {
  const Lock lock(g_devices->mutex);
  if (g_devices->stand_in) return *g_devices->stand_in;
  auto& made = g_devices->made[device.index()];
  if (made == nullptr) made = std::make_unique<TorchDevice>(device);
  return *made;
}

void serve_all_by(std::shared_ptr<memory::Device> device) {
  const Lock lock(g_devices->mutex);
  g_devices->stand_in = std::move(device);
}

LeaveCapturesAlone::LeaveCapturesAlone() : mode_(kCaptureRelaxed) { exchange_capture_mode(&mode_); }

LeaveCapturesAlone::~LeaveCapturesAlone() { exchange_capture_mode(&mode_); }

}  // namespace pccl::torch_layer
