#include "csrc/torch/gradient_work.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pccl::torch_layer {
namespace {

namespace py = pybind11;
using c10::ivalue::Future;

// torch expects the gradient as an object of Python. torch's own class for such objects cannot be
// linked outside of torch.
class PythonTensor final : public c10::ivalue::PyObjectHolder {
 public:
  explicit PythonTensor(py::object tensor) : tensor_(std::move(tensor)) {}
  ~PythonTensor() override {
    if (!Py_IsInitialized()) {  // the object is gone with the interpreter
      tensor_.release();
      return;
    }
    const py::gil_scoped_acquire gil;
    tensor_ = py::object();
  }

  PyObject* getPyObject() override { return tensor_.ptr(); }
  c10::InferredType tryToInferType() override {
    return c10::InferredType(c10::TypePtr(c10::TensorType::get()));
  }
  c10::IValue toIValue(const c10::TypePtr&, std::optional<int32_t>) override { return tensor(); }
  std::string toStr() override { return "a gradient"; }
  std::vector<at::Tensor> extractTensors() override { return {tensor()}; }

 private:
  at::Tensor tensor() const {
    const py::gil_scoped_acquire gil;
    return tensor_.cast<at::Tensor>();
  }

  py::object tensor_;
};

// Carries the Future to Python, because only torch can make the Python object of a Future.
class GradientWork : public c10d::Work {
 public:
  explicit GradientWork(c10::intrusive_ptr<Future> future) : future_(std::move(future)) {}
  c10::intrusive_ptr<Future> getFuture() override { return future_; }

 private:
  const c10::intrusive_ptr<Future> future_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> gradient_work(const c10::intrusive_ptr<c10d::Work>& work,
                                             py::object gradient) {
  auto future = c10::make_intrusive<Future>(c10::PyObjectType::get());
  const c10::IValue value(c10::intrusive_ptr<c10::ivalue::PyObjectHolder>(
      c10::make_intrusive<PythonTensor>(std::move(gradient))));
  const py::gil_scoped_release no_gil;
  work->getFuture()->addCallback([future, value](Future& reduced) {
    if (reduced.hasError()) {
      future->setError(reduced.exception_ptr());
    } else {
      future->markCompleted(value);
    }
  });
  return c10::make_intrusive<GradientWork>(std::move(future));
}

}  // namespace pccl::torch_layer
