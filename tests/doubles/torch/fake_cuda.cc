// FakeCuda: CUDA devices for tests on machines without one. Tensors have a CUDA device, and their
// memory is memory of the host. A memory::FakeDevice copies them, with delays, in another order,
// and with failures. While an object lives, it serves all devices of the process.
// Any thread may call it. It tests pccl's handling of device tensors, not CUDA.
// A build in place has it as a second Python module in the file of the first: setup.py adds it, and
// tests/python/fake_cuda.py loads it.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <utility>

#include "csrc/base/mutex.h"
#include "csrc/memory/state_hash.h"
#include "csrc/torch/device.h"
#include "csrc/torch/record.h"
#include "tests/doubles/fake_device.h"

namespace pccl::torch_layer {
namespace {

using memory::DeviceCopies;
using memory::DeviceEventPtr;
using memory::FakeDevice;

class FakeCuda {
 public:
  explicit FakeCuda(FakeDevice::Options options);
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  // A tensor on the device cuda:`index` with the memory, sizes and strides of this CPU tensor.
  static at::Tensor tensor(const at::Tensor& memory, int index);
  // The same elements as a CPU tensor.
  static at::Tensor on_host(const at::Tensor& tensor);
  void set(FakeDevice::Options options);
  size_t pinned_bytes() const;
  size_t pinned_bytes_max() const;
  uint64_t copied_in() const;
  uint64_t bytes_out() const;

 private:
  class Locked;
  const std::shared_ptr<Locked> device_;
};

void move(const memory::DeviceCopy& copy, FakeDevice::Direction direction) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto& on_device = static_cast<const TensorMemory&>(*copy.device);
  const TensorMemory tensor(FakeCuda::on_host(on_device.tensor), on_device.parts, on_device.pitch);
  if (direction == FakeDevice::Direction::kOut) {
    copy_to_host(tensor, copy.host, false);
  } else {
    copy_from_host(copy.host, tensor, false);
  }
}

std::vector<uint64_t> hash_all(const std::vector<memory::DeviceBytesPtr>& what) {
  std::vector<uint64_t> hashes;
  for (const memory::DeviceBytesPtr& one : what) {
    const at::Tensor bytes = FakeCuda::on_host(static_cast<const TensorBytes&>(*one).bytes);
    hashes.push_back(
        memory::state_hash(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()));
  }
  return hashes;
}

// The fake device, with a mutex for its threads.
class FakeCuda::Locked : public memory::Device, public std::enable_shared_from_this<Locked> {
 public:
  explicit Locked(FakeDevice::Options options) : device_(options, move, hash_all) {}

  Result<std::unique_ptr<memory::PinnedMemory>> pinned(size_t bytes) override {
    const Lock lock(mutex_);
    auto inner = device_.pinned(bytes);
    if (!inner.ok()) return inner;
    return std::unique_ptr<memory::PinnedMemory>(
        std::make_unique<Pinned>(shared_from_this(), std::move(inner.value())));
  }
  bool capturing() override {
    const Lock lock(mutex_);
    return device_.capturing();
  }
  Result<DeviceEventPtr> mark() override {
    const Lock lock(mutex_);
    return wrap(device_.mark());
  }
  Result<DeviceEventPtr> copy_out(const DeviceEventPtr& mark, const DeviceCopies& copies) override {
    const Lock lock(mutex_);
    return wrap(device_.copy_out(inner_of(mark), copies));
  }
  Result<DeviceEventPtr> copy_in(const DeviceEventPtr& mark, const DeviceCopies& copies) override {
    const Lock lock(mutex_);
    return wrap(device_.copy_in(inner_of(mark), copies));
  }
  Result<std::unique_ptr<memory::DeviceHashes>> hash(
      const std::vector<memory::DeviceBytesPtr>& what) override {
    const Lock lock(mutex_);
    auto inner = device_.hash(what);
    if (!inner.ok() || inner.value() == nullptr) return inner;
    return std::unique_ptr<memory::DeviceHashes>(
        std::make_unique<Hashes>(shared_from_this(), std::move(inner.value())));
  }
  template <typename Function>
  auto with(Function function) {
    const Lock lock(mutex_);
    return function(device_);
  }

 private:
  struct Pinned : memory::PinnedMemory {
    Pinned(std::shared_ptr<Locked> owner, std::unique_ptr<memory::PinnedMemory> memory)
        : device(std::move(owner)), inner(std::move(memory)) {}
    ~Pinned() override {
      const Lock lock(device->mutex_);
      inner.reset();
    }
    std::span<std::byte> bytes() override { return inner->bytes(); }
    const std::shared_ptr<Locked> device;
    std::unique_ptr<memory::PinnedMemory> inner;
  };
  struct Event : memory::DeviceEvent {
    Event(std::shared_ptr<Locked> owner, DeviceEventPtr event)
        : device(std::move(owner)), inner(std::move(event)) {}
    Result<bool> reached() override {
      const Lock lock(device->mutex_);
      return inner->reached();
    }
    const std::shared_ptr<Locked> device;
    const DeviceEventPtr inner;
  };
  struct Hashes : memory::DeviceHashes {
    Hashes(std::shared_ptr<Locked> owner, std::unique_ptr<memory::DeviceHashes> hashes)
        : device(std::move(owner)), inner(std::move(hashes)) {}
    Result<bool> reached() override {
      const Lock lock(device->mutex_);
      return inner->reached();
    }
    std::vector<uint64_t> values() override {
      const Lock lock(device->mutex_);
      return inner->values();
    }
    const std::shared_ptr<Locked> device;
    const std::unique_ptr<memory::DeviceHashes> inner;
  };
  static DeviceEventPtr inner_of(const DeviceEventPtr& mark) {
    return mark == nullptr ? nullptr : static_cast<const Event&>(*mark).inner;
  }
  Result<DeviceEventPtr> wrap(Result<DeviceEventPtr> event) {
    if (!event.ok()) return event;
    return DeviceEventPtr(std::make_shared<Event>(shared_from_this(), std::move(event.value())));
  }

  Mutex mutex_;
  FakeDevice device_;
};

FakeCuda::FakeCuda(FakeDevice::Options options) : device_(std::make_shared<Locked>(options)) {
  serve_all_by(device_);
}

FakeCuda::~FakeCuda() { serve_all_by(nullptr); }

at::Tensor FakeCuda::tensor(const at::Tensor& memory, int index) {
  const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
  return at::for_blob(memory.mutable_data_ptr(), memory.sizes())
      .strides(memory.strides())
      .deleter([memory](void*) {})
      .options(memory.options().device(device))
      .target_device(device)
      .make_tensor();
}

at::Tensor FakeCuda::on_host(const at::Tensor& tensor) {
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions().dtype(tensor.scalar_type()));
}

void FakeCuda::set(FakeDevice::Options options) {
  device_->with([&](FakeDevice& device) { device.set(options); });
}
size_t FakeCuda::pinned_bytes() const {
  return device_->with([](FakeDevice& device) { return device.pinned_bytes(); });
}
size_t FakeCuda::pinned_bytes_max() const {
  return device_->with([](FakeDevice& device) { return device.pinned_bytes_max(); });
}
uint64_t FakeCuda::bytes_out() const {
  return device_->with([](FakeDevice& device) { return device.bytes_out(); });
}
uint64_t FakeCuda::copied_in() const {
  return device_->with([](FakeDevice& device) { return device.copied_in(); });
}

}  // namespace
}  // namespace pccl::torch_layer

PYBIND11_MODULE(pccl_fake_cuda, m) {
  using namespace pccl::torch_layer;
  namespace py = pybind11;
  using Options = FakeDevice::Options;
  bind_record(m, "FakeOptions", Field{"seed", &Options::seed},
              Field{"fails_one_in", &Options::fails_one_in},
              Field{"delay_max", &Options::delay_max}, Field{"pinned_max", &Options::pinned_max},
              Field{"capturing", &Options::capturing}, Field{"kernels", &Options::kernels},
              Field{"stuck", &Options::stuck});
  py::class_<FakeCuda>(m, "FakeCuda")
      .def(py::init<Options>(), py::arg("options"))
      .def_static("tensor", &FakeCuda::tensor, py::arg("memory"), py::kw_only(), py::arg("index"))
      .def_static("on_host", &FakeCuda::on_host, py::arg("tensor"))
      .def("set", &FakeCuda::set, py::arg("options"))
      .def_property_readonly("pinned_bytes", &FakeCuda::pinned_bytes)
      .def_property_readonly("pinned_bytes_max", &FakeCuda::pinned_bytes_max)
      .def_property_readonly("copied_in", &FakeCuda::copied_in)
      .def_property_readonly("bytes_out", &FakeCuda::bytes_out);
}
