#include "csrc/torch/errors.h"

#include <torch/csrc/Exceptions.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace pccl::torch_layer {
namespace {

namespace py = pybind11;

// torch carries a PyTorchError unchanged through the dispatcher, autograd and Futures, and asks it
// for its Python class.
class Error : public torch::PyTorchError {
 public:
  Error(PyObject* type, std::string message) : PyTorchError(std::move(message)), type_(type) {}
  PyObject* python_type() override { return type_; }

 private:
  PyObject* type_;
};

constexpr size_t kCodeCount = static_cast<size_t>(Code::kProtocol) + 1;
std::array<PyObject*, kCodeCount> g_types{};  // never freed: exceptions may outlive the module

const char* class_name(Code code) {
  switch (code) {
    case Code::kPeerLost: return "PeerLostError";
    case Code::kTooFewPeers: return "TooFewPeersError";
    case Code::kMembershipChanged: return "MembershipChangedError";
    case Code::kMismatch: return "CollectiveMismatchError";
    case Code::kOperationTimeout: return "OperationTimeoutError";
    case Code::kInvalidState: return "InvalidStateError";
    case Code::kSharedState: return "SharedStateError";
    case Code::kMasterLost: return "MasterLostError";
    case Code::kKicked: return "KickedError";
    case Code::kAuthentication: return "AuthenticationError";
    case Code::kTopology: return "TopologyError";
    case Code::kOk:
    case Code::kInvalidArgument:
    case Code::kSystem:
    case Code::kProtocol: break;
  }
  return "PcclError";
}

PyObject* type_of(Code code) {
  if (code == Code::kInvalidArgument) return PyExc_ValueError;
  if (code == Code::kSystem) return PyExc_OSError;
  PyObject* type = g_types[static_cast<size_t>(code)];
  PCCL_ASSERT(type != nullptr);
  return type;
}

}  // namespace

void load_error_types() {
  const py::module_ errors = py::module_::import("pccl_backend.errors");
  for (size_t code = 0; code < kCodeCount; ++code) {
    g_types[code] = py::object(errors.attr(class_name(static_cast<Code>(code)))).release().ptr();
  }
}

std::exception_ptr to_exception(const Status& status) {
  PCCL_ASSERT(!status.ok());
  return std::make_exception_ptr(Error(type_of(status.code), status.message));
}

void raise(const Status& status) { std::rethrow_exception(to_exception(status)); }
void raise_value_error(const std::string& message) { throw Error(PyExc_ValueError, message); }
void raise_not_implemented(const std::string& message) {
  throw Error(PyExc_NotImplementedError, message);
}

bool interrupted() {
  // Python runs signal handlers on its main thread only. Other threads need not take the GIL.
  if (gettid() != getpid() || !Py_IsInitialized()) return false;
  const py::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

void raise_interrupt() {
  const py::gil_scoped_acquire gil;
  throw py::error_already_set();
}

void with_gil(const std::function<void()>& work) {
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire gil;
  work();
}

ReleaseGil::ReleaseGil() {
  if (Py_IsInitialized() && PyGILState_Check()) state_ = PyEval_SaveThread();
}

ReleaseGil::~ReleaseGil() {
  if (state_ != nullptr) PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
}

}  // namespace pccl::torch_layer
