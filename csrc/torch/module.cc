// module: the Python module pccl_backend._C, the interface of this layer to Python. It only
// converts values. The .py files of the package give these names their meaning, and _C.pyi has
// their types.

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/base/log.h"
#include "csrc/base/log_queue.h"
#include "csrc/memory/state_hash.h"
#include "csrc/net/library_check.h"
#include "csrc/peer/shell/state/sync_call.h"
#include "csrc/torch/answers.h"
#include "csrc/torch/borrowed_state.h"
#include "csrc/torch/call_options.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/gradient_work.h"
#include "csrc/torch/join.h"
#include "csrc/torch/kernels_library.h"
#include "csrc/torch/overlap.h"
#include "csrc/torch/process_group.h"
#include "csrc/torch/quantized.h"
#include "csrc/torch/record.h"
#include "csrc/torch/timeout.h"

namespace pccl::torch_layer {
namespace {

namespace py = pybind11;
using NoGil = py::call_guard<py::gil_scoped_release>;

py::dict update_topology(PcclGroup& group) {
  std::optional<peer::Topology> topology;
  {
    const py::gil_scoped_release no_gil;
    topology = group.backend().update_topology().topology;
  }
  PCCL_ASSERT(topology.has_value());
  return topology_answer(*topology);
}

py::dict optimize_topology(PcclGroup& group, uint32_t budget_ms, uint64_t max_bytes) {
  std::optional<protocol::TopologyPlan> plan;
  {
    const py::gil_scoped_release no_gil;
    plan = group.backend().optimize_topology(std::chrono::milliseconds(budget_ms), max_bytes).plan;
  }
  PCCL_ASSERT(plan.has_value());
  return plan_answer(*plan);
}

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

std::vector<NamedTensor> entries_of(const NamedTensors& tensors) {
  std::vector<NamedTensor> entries;
  for (const auto& [key, tensor] : tensors) entries.push_back({key, tensor});
  return entries;
}

// Returns a function that calls progress(done, total, peers). An exception stays pending.
TellProgress told_to(const std::optional<py::function>& progress) {
  if (!progress) return {};
  return [&progress](const peer::SyncProgress& now) {
    const py::gil_scoped_acquire gil;
    PyObject* const result = PyObject_CallFunction(
        progress->ptr(), "KKI", static_cast<unsigned long long>(now.done),
        static_cast<unsigned long long>(now.total), static_cast<unsigned int>(now.peers));
    Py_XDECREF(result);
    return result != nullptr;
  };
}

py::dict sync_shared_state(PcclGroup& group, uint64_t revision, int strategy, BoundState& tensors,
                           const std::optional<py::function>& progress) {
  peer::JointResult result;
  {
    const py::gil_scoped_release no_gil;
    result = group.backend().sync_shared_state(
        revision, static_cast<protocol::SyncStrategy>(strategy), tensors, told_to(progress));
  }
  return state_answer(result);
}

std::shared_ptr<peer::SyncCall> begin_sync(PcclGroup& group, uint64_t revision, int strategy,
                                           BoundState& tensors) {
  const py::gil_scoped_release no_gil;
  return group.backend().begin_sync(revision, static_cast<protocol::SyncStrategy>(strategy),
                                    tensors);
}

py::dict wait_for(peer::SyncCall& sync, std::optional<double> timeout,
                  const std::optional<py::function>& progress) {
  peer::JointResult result;
  {
    const py::gil_scoped_release no_gil;
    result = wait_for_sync(sync, timeout, told_to(progress));
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

// The hash that the tensor has as an entry of a shared state.
uint64_t state_hash_of(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.is_contiguous())
    raise_value_error("state_hash is of a contiguous tensor on the CPU");
  check_storage("the tensor of state_hash", tensor);
  return memory::state_hash(static_cast<const std::byte*>(tensor.const_data_ptr()),
                            tensor.nbytes());
}

// --- The module ----------------------------------------------------------------------------------

// Refuses to run with a torch, a libuv or an OpenSSL that this module was not built for.
void check_environment() {
  const auto running = py::module_::import("torch").attr("__version__").cast<std::string>();
  const std::string built = PCCL_TORCH_BUILD;  // major.minor: a compiled module depends on both
  if (running.substr(0, running.find('.', running.find('.') + 1)) != built) {
    throw py::import_error("pccl is built for torch " + built + ", but this process runs torch " +
                           running +
                           ": build it for this one, with `pip install --no-build-isolation .` in "
                           "its source folder");
  }
  const auto* const torch_code = reinterpret_cast<const void*>(&c10d::opTypeToString);
  if (const Status status = net::check_libraries(torch_code); !status.ok())
    throw py::import_error(status.message);
}

template <typename T, typename Base>
using TorchClass = py::class_<T, Base, c10::intrusive_ptr<T>>;

// Sets the given options, for this thread. Returns the earlier values, to be set again later.
py::tuple set_call_options(std::optional<std::string> tag, std::optional<bool> keep,
                           std::optional<FormatNumbers> quantize, std::optional<int64_t> priority) {
  if (tag) check_tag(*tag);
  if (priority) check_priority(*priority);
  CallOptions& options = call_options();
  py::tuple before =
      py::make_tuple(options.tag, options.keep, numbers_of(options.format), options.priority);
  if (tag) options.tag = std::move(*tag);
  if (keep) options.keep = *keep;
  if (quantize) options.format = format_of(*quantize);
  if (priority) options.priority = static_cast<int>(*priority);
  return before;
}

void bind_join_options(py::module_& m) {
  using Options = JoinOptions;
  bind_record(
      m, "JoinOptions", Field{"host", &Options::host}, Field{"port", &Options::port},
      Field{"run", &Options::run}, Field{"peer_group", &Options::peer_group},
      Field{"founders", &Options::founders}, Field{"min_peers", &Options::min_peers},
      Field{"rank", &Options::rank}, Field{"launch", &Options::launch},
      Field{"name", &Options::name}, Field{"timeout", &Options::timeout},
      Field{"on_peer_loss", &Options::on_peer_loss}, Field{"pattern", &Options::pattern},
      Field{"peer_timeout", &Options::peer_timeout},
      Field{"first_call_timeout", &Options::first_call_timeout},
      Field{"call_timeout", &Options::call_timeout},
      Field{"master_timeout", &Options::master_timeout}, Field{"advertise", &Options::advertise},
      Field{"advertised_port", &Options::advertised_port},
      Field{"port_range", &Options::port_range}, Field{"lanes", &Options::lanes},
      Field{"tcp_congestion", &Options::tcp_congestion}, Field{"restore", &Options::restore},
      Field{"check_callsite", &Options::check_callsite}, Field{"open_run", &Options::open_run},
      Field{"secret_file", &Options::secret_file}, Field{"token", &Options::token},
      Field{"insecure", &Options::insecure});
}

void bind_shared_state(py::module_& m) {
  py::class_<BoundState, std::shared_ptr<BoundState>>(m, "BoundState")
      .def(py::init([](const NamedTensors& tensors) {
             return std::make_shared<BoundState>(entries_of(tensors));
           }),
           py::arg("tensors"))
      .def(py::init([](const NamedTensors& tensors, uint64_t added_bytes_max,
                       std::set<std::string> other_names) {
             return std::make_shared<BoundState>(
                 entries_of(tensors),
                 peer::StateSpans::MayAdd{added_bytes_max, std::move(other_names)});
           }),
           py::arg("tensors"), py::kw_only(), py::arg("added_bytes_max"), py::arg("other_names"));
  using peer::SyncCall;
  py::class_<SyncCall, std::shared_ptr<SyncCall>>(m, "SyncCall")
      .def("wait", &wait_for, py::arg("timeout"), py::arg("progress"))
      .def("is_completed", &SyncCall::ended)
      .def("is_concluded", &SyncCall::concluded)
      .def_property_readonly("receives", &SyncCall::receives)
      .def_property_readonly("revision", [](const SyncCall& sync) { return sync.elected().first; })
      .def_property_readonly("hash", [](const SyncCall& sync) { return sync.elected().second; });
}

void bind_hosted_run(py::module_& m) {
  py::class_<HostedRun, std::shared_ptr<HostedRun>>(m, "HostedRun")
      .def(py::init([](std::string host, std::string token, bool drawn, std::string name,
                       double patience) {
             return std::make_shared<HostedRun>(
                 HostedRun::Options{std::move(host), std::move(token), drawn, std::move(name),
                                    checked_timeout(std::chrono::duration<double>(patience))});
           }),
           py::kw_only(), py::arg("host"), py::arg("token"), py::arg("drawn"), py::arg("name"),
           py::arg("patience"), NoGil())
      .def_property_readonly("port", &HostedRun::port)
      .def_property_readonly("token", &HostedRun::token)
      .def_property_readonly("name", &HostedRun::name)
      .def("give_up", &HostedRun::give_up);
  m.def(
      "leave_all",
      [](bool failed) {
        bool stop = false;
        PeerSession::leave_all(failed, [&] { return stop = stop || interrupted(); });
        const py::gil_scoped_acquire gil;
        if (stop) PyErr_Clear();  // the signal has ended the wait, which is logged
      },
      py::arg("failed"), NoGil());
}

// torch calls these methods of a backend in Python only.
void bind_backend(py::module_& m) {
  TorchClass<PcclBackend, c10d::Backend>(m, "PcclBackend")
      .def("join_composite", &PcclBackend::join_composite, py::kw_only(), py::arg("serves_cuda"))
      .def_property_readonly("in_composite", &PcclBackend::in_composite)
      .def_property_readonly("reconfigurable", &PcclBackend::reconfigurable)
      .def_property_readonly("open_run",
                             [](const PcclBackend& backend) { return backend.origin().open_run; })
      .def_property_readonly("store",
                             [](const PcclBackend& backend) { return backend.origin().store; })
      .def_property_readonly("timeout_s",
                             [](const PcclBackend& backend) {
                               return std::chrono::duration<double>(backend.timeout()).count();
                             })
      // Rank and size. In torch 2.13 and older, rank() and size() of a backend never change.
      .def(
          "place",
          [](const PcclBackend& backend) { return std::pair(backend.rank(), backend.size()); },
          NoGil())
      // new_group calls it on ranks that are no members. A group of pccl needs nothing from them.
      .def(
          "perform_nocolor_split", [](PcclBackend&, const py::object&) {}, py::arg("device"))
      .def("shrink", [](const py::object& backend, const py::args& args, const py::kwargs& kwargs) {
        const py::module_ split = py::module_::import("pccl_backend._torch.split");
        return split.attr("shrink")(backend, *args, **kwargs);
      });
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
c10::intrusive_ptr<c10d::Work> reconfigure(const py::object& group,
                                           const c10d::ReconfigureOptions& options) {
  auto& ours = group.cast<PcclGroup&>();
  c10::intrusive_ptr<c10d::Work> work;
  {
    const py::gil_scoped_release no_gil;
    work = ours.backend().reconfigure(options);
  }
  const py::module_ world = py::module_::import("pccl_backend._torch.world");
  world.attr("refresh")(group, py::arg("joined") = true);
  return work;
}
#endif

void bind_join(py::module_& m) {
  m.def("join", &join, py::arg("options"), py::kw_only(), py::arg("store"), py::arg("hosted"));
  m.def(
      "make_reconfigurable",
      [](JoinOptions options, const c10::intrusive_ptr<c10d::Store>& store, std::string host,
         std::string token, bool keys, std::string advertised, int rank, int size, double timeout) {
        Reconfiguration::Options all{{std::move(host), std::move(token), false, keys},
                                     std::move(advertised),
                                     std::move(options)};
        return make_reconfigurable(std::move(all), store, rank, size, timeout);
      },
      py::arg("options"), py::kw_only(), py::arg("store"), py::arg("host"), py::arg("token"),
      py::arg("keys"), py::arg("advertised"), py::arg("rank"), py::arg("size"), py::arg("timeout"));
  m.def(
      "check_descriptors",
      [](size_t size, bool hosts) {
        const Status status = PeerSession::check_descriptors(size, hosts);
        if (!status.ok()) raise(status);
      },
      py::arg("size"), py::kw_only(), py::arg("hosts"), NoGil());
}

void route_logs(bool to_queue) {
  if (to_queue) return log_queue().open();
  for (const LogRecord& record : log_queue().close()) write_log(record);
}

void bind_log(py::module_& m) {
  py::class_<LogRecord>(m, "LogRecord")
      .def_property_readonly("level",
                             [](const LogRecord& record) { return static_cast<int>(record.level); })
      .def_property_readonly("event", [](const LogRecord& record) { return text(record.event); })
      .def_property_readonly("message", &message)
      .def_property_readonly("created",
                             [](const LogRecord& record) { return to_seconds(record.since_1970); })
      .def_property_readonly("run", [](const LogRecord& record) { return record.about.run; })
      .def_property_readonly("group", [](const LogRecord& record) { return record.about.group; })
      .def_property_readonly("peer", [](const LogRecord& record) { return record.about.peer; })
      .def_property_readonly("rank", [](const LogRecord& record) { return record.about.rank; })
      .def_property_readonly("epoch", [](const LogRecord& record) { return record.about.epoch; });
  m.def("set_log_level", [](const std::string& name) { return set_log_level(name); });
  m.def("route_logs", &route_logs, py::arg("to_queue"), NoGil());
  m.def(
      "take_logs",
      [](double limit) {
        return log_queue().take(std::chrono::milliseconds(int64_t(limit * 1e3)));
      },
      py::arg("limit"), NoGil());
  m.def(
      "close_logs", [] { return log_queue().close(); }, NoGil());
  m.def("write_log", &write_log, py::arg("record"), NoGil());
}

void bind(py::module_& m) {
  py::module_::import("torch.distributed");  // registers the base class
  bind_backend(m);
  TorchClass<PcclGroup, c10d::ProcessGroup>(m, "PcclGroup")
      .def_property_readonly("open_run", &PcclGroup::open_run)
      .def_property_readonly("backend", &PcclGroup::shared_backend)
      .def("serve", &PcclGroup::serve, py::arg("devices"))
#ifdef C10D_BACKEND_HAS_RECONFIGURE
      .def("reconfigure", &reconfigure)
#endif
      .def("update_topology", &update_topology)
      .def(
          "are_peers_pending", [](PcclGroup& group) { return group.backend().are_peers_pending(); },
          NoGil())
      .def("optimize_topology", &optimize_topology, py::arg("budget_ms"), py::arg("max_bytes"))
      .def("sync_shared_state", &sync_shared_state, py::kw_only(), py::arg("revision"),
           py::arg("strategy"), py::arg("tensors"), py::arg("progress"))
      .def("begin_sync", &begin_sync, py::kw_only(), py::arg("revision"), py::arg("strategy"),
           py::arg("tensors"))
      .def("count_split", &PcclGroup::count_split)
      .def("split_group",
           [](const py::object& group, const py::args& args, const py::kwargs& kwargs) {
             const py::module_ split = py::module_::import("pccl_backend._torch.split");
             return split.attr("split")(group, *args, **kwargs);
           })
      .def("run_info", &run_info)
      .def(
          "report",
          [](PcclGroup& group, const std::vector<std::pair<std::string, double>>& numbers) {
            std::vector<protocol::Scalar> scalars;
            for (const auto& [name, value] : numbers) scalars.push_back({name, value});
            group.backend().report(scalars);
          },
          NoGil(), py::arg("numbers"))
      .def(
          "add_saving",
          [](PcclGroup& group, double seconds) { group.backend().add_saving(seconds); }, NoGil())
      .def("raise_last_error", [](PcclGroup& group) { group.backend().raise_last_error(); });
  bind_shared_state(m);
  bind_join_options(m);
  bind_hosted_run(m);
  bind_join(m);
  m.def("checked_timeout", [](double seconds) {
    return std::chrono::duration<double>(checked_timeout(std::chrono::duration<double>(seconds)))
        .count();
  });
  m.def("state_hash", &state_hash_of, NoGil(), py::arg("tensor"));
  m.def("check_storage", &check_storage, py::arg("what"), py::arg("tensor"));
  m.def("share_memory", &share_memory, py::arg("one"), py::arg("other"));
  m.def("shares_with_itself", &shares_with_itself, py::arg("tensor"));
  m.def("set_call_options", &set_call_options, py::kw_only(), py::arg("tag"), py::arg("keep"),
        py::arg("quantize"), py::arg("priority"));
  m.def("quantize_dequantize", &quantize_dequantize, py::arg("tensor"), py::kw_only(),
        py::arg("quantize"), py::arg("seed"));
  m.def("parts", &parts);
  m.def("ended_before_call", [](const c10::intrusive_ptr<c10d::Work>& work) {
    const auto* const ours = dynamic_cast<PcclWork*>(work.get());
    return ours != nullptr && ours->ended_before_call();
  });
  m.def("gradient_work", &gradient_work, py::arg("work"), py::arg("gradient"));
  m.def(
      "cuda_library", [] { return kernels_library().state; }, NoGil());
  bind_log(m);
}

}  // namespace
}  // namespace pccl::torch_layer

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace pccl::torch_layer;
  check_environment();
  load_error_types();
  bind(m);
}
