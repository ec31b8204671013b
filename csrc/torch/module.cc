// module: the Python module pccl_backend._C, through which Python sees this layer. It only converts
// values. The .py files of the package give these names their meaning, and _C.pyi has their types.

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/net/libuv_check.h"
#include "csrc/torch/answers.h"
#include "csrc/torch/call_options.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/process_group.h"

namespace pccl::torch_layer {
namespace {

namespace py = pybind11;
using NoGil = py::call_guard<py::gil_scoped_release>;
using Store = c10::intrusive_ptr<c10d::Store>;

Duration seconds(double value) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

// A master inside this process. join() takes it over.
struct HostedMaster {
  explicit HostedMaster(const std::string& host, uint16_t port) {
    auto opened = master::Shell::open({host, port});
    if (!opened.ok()) raise(opened.status());
    shell = std::move(opened.value());
  }
  std::unique_ptr<master::Shell> shell;
};

// The keyword arguments are those of _C.pyi. _rendezvous.py always gives all of them.
PeerSession::Request to_request(const py::kwargs& given) {
  PeerSession::Request request;
  request.master = {given["host"].cast<std::string>(), given["port"].cast<uint16_t>()};
  request.restore = given["restore"].cast<bool>();
  std::tie(request.data.port_first, request.data.port_last) =
      given["port_range"].cast<std::pair<uint16_t, uint16_t>>();
  request.data.lanes = given["lanes"].cast<uint32_t>();
  request.data.congestion = given["tcp_congestion"].cast<std::string>();
  peer::Options& options = request.peer;
  options.run = given["run"].cast<std::string>();
  options.group = GroupId{given["peer_group"].cast<uint32_t>()};
  options.policy = given["retry_on_peer_loss"].cast<bool>() ? protocol::LossPolicy::kRetry
                                                            : protocol::LossPolicy::kRaise;
  options.restore = request.restore;
  options.min_peers = given["min_peers"].cast<uint32_t>();
  options.founders = given["founders"].cast<uint32_t>();
  options.rank = given["rank"].cast<int32_t>();
  options.advertised = {given["advertise"].cast<std::string>(),
                        given["advertised_port"].cast<uint16_t>(), request.data.port_first};
  options.join_timeout = seconds(given["timeout"].cast<double>());
  options.peer_timeout = seconds(given["peer_timeout"].cast<double>());
  options.first_call_timeout = seconds(given["first_call_timeout"].cast<double>());
  options.launch = given["launch"].cast<std::string>();
  options.master_timeout = seconds(given["master_timeout"].cast<double>());
  options.master_text = pccl::text(request.master);
  return request;
}

c10::intrusive_ptr<PcclGroup> join(const Store& store, HostedMaster* master, bool open_run,
                                   const py::kwargs& given) {
  PeerSession::Request request = to_request(given);
  if (master != nullptr) request.hosted = std::move(master->shell);
  const Duration timeout = request.peer.join_timeout;

  const py::gil_scoped_release no_gil;
  bool stop = false;
  auto joined = PeerSession::join(std::move(request), [&] { return stop = interrupted(); });
  if (stop) raise_interrupt();
  if (!joined.ok()) raise(joined.status());
  const auto backend = c10::make_intrusive<PcclBackend>(
      std::move(joined.value()), std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
  return c10::make_intrusive<PcclGroup>(store, backend, open_run);
}

py::dict update_topology(PcclGroup& group) {
  std::optional<peer::Topology> topology;
  {
    const py::gil_scoped_release no_gil;
    topology = group.backend().update_topology().topology;
  }
  PCCL_ASSERT(topology.has_value());
  return topology_answer(*topology);
}

py::dict sync_shared_state(PcclGroup& group, uint64_t revision, int strategy,
                           const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<PcclBackend::Entry> entries;
  for (const auto& [key, tensor] : tensors) entries.push_back({key, tensor});
  peer::JointResult result;
  {
    const py::gil_scoped_release no_gil;
    result = group.backend().sync_shared_state(
        revision, static_cast<protocol::SyncStrategy>(strategy), entries);
  }
  return state_answer(result);
}

py::dict run_info(PcclGroup& group) {
  std::optional<peer::Info> info;
  {
    const py::gil_scoped_release no_gil;
    info = group.backend().info();
  }
  return info_answer(*info);
}

py::list parts(const c10::intrusive_ptr<c10d::Work>& work) {
  auto* const ours = dynamic_cast<PcclWork*>(work.get());
  if (ours == nullptr) {
    throw py::type_error("contributors() is for the Work of a pccl group");
  }
  uint64_t elements = 0;
  for (const at::Tensor& tensor : ours->result()) elements += static_cast<uint64_t>(tensor.numel());
  return parts_answer(ours->parts(), elements);
}

// --- The module ----------------------------------------------------------------------------------

// Refuses to run with a torch or a libuv that this module was not built for.
void check_environment() {
  const auto running = py::module_::import("torch").attr("__version__").cast<std::string>();
  const std::string built = PCCL_TORCH_BUILD;  // major.minor: a compiled module depends on both
  if (running.substr(0, running.find('.', running.find('.') + 1)) != built) {
    throw py::import_error("pccl is built for torch " + built + ", but this process runs torch " +
                           running +
                           ": build it for this one, with `pip install --no-build-isolation .` in "
                           "its source folder");
  }
  if (const Status status = net::check_libuv(); !status.ok())
    throw py::import_error(status.message);
}

template <typename T, typename Base>
using TorchClass = py::class_<T, Base, c10::intrusive_ptr<T>>;

// Sets what is given, for this thread. Returns the values from before, to be set again later.
py::tuple set_call_options(std::optional<std::string> tag, std::optional<bool> keep) {
  if (tag) check_tag(*tag);
  CallOptions& options = call_options();
  py::tuple before = py::make_tuple(options.tag, options.keep);
  if (tag) options.tag = std::move(*tag);
  if (keep) options.keep = *keep;
  return before;
}

void bind(py::module_& m) {
  py::module_::import("torch.distributed");  // registers the base class
  TorchClass<PcclBackend, c10d::Backend>(m, "PcclBackend");
  TorchClass<PcclGroup, c10d::ProcessGroup>(m, "PcclGroup")
      .def_property_readonly("open_run", &PcclGroup::open_run)
      .def_property_readonly("backend", &PcclGroup::shared_backend)
      .def("serve", &PcclGroup::serve, py::arg("devices"))
      .def("update_topology", &update_topology)
      .def(
          "are_peers_pending", [](PcclGroup& group) { return group.backend().are_peers_pending(); },
          NoGil())
      .def("sync_shared_state", &sync_shared_state, py::kw_only(), py::arg("revision"),
           py::arg("strategy"), py::arg("tensors"))
      .def("run_info", &run_info);
  py::class_<HostedMaster>(m, "HostedMaster")
      .def(py::init<const std::string&, uint16_t>(), py::kw_only(), py::arg("host"),
           py::arg("port"), NoGil())
      .def_property_readonly("port",
                             [](const HostedMaster& master) { return master.shell->port(); });
  m.def("join", &join, py::kw_only(), py::arg("store"), py::arg("master"), py::arg("open_run"));
  m.def("set_call_options", &set_call_options, py::kw_only(), py::arg("tag"), py::arg("keep"));
  m.def("parts", &parts);
  m.def("ended_before_call", [](const c10::intrusive_ptr<c10d::Work>& work) {
    const auto* const ours = dynamic_cast<PcclWork*>(work.get());
    return ours != nullptr && ours->ended_before_call();
  });
  m.def("set_log_level", [](const std::string& name) { return set_log_level(name); });
}

}  // namespace
}  // namespace pccl::torch_layer

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace pccl::torch_layer;
  check_environment();
  load_error_types();
  bind(m);
  // Many scripts end without destroy_process_group. This handler leaves for them while the Python
  // interpreter still works.
  py::module_::import("atexit").attr("register")(
      py::cpp_function(&PeerSession::leave_all, NoGil()));
}
