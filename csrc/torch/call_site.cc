#include "csrc/torch/call_site.h"

#include <torch/python.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/protocol/limits.h"

namespace pccl::torch_layer {
namespace {

// The folders of the packages whose lines are passed over, each with a slash at its end.
// REQUIRES: the GIL.
std::vector<std::string> folders_of_packages() {
  std::vector<std::string> folders;
  for (const char* const name : {"torch", "pccl_backend"}) {
    for (const py::handle path : py::module_::import(name).attr("__path__"))
      folders.push_back(path.cast<std::string>() + "/");
  }
  return folders;
}

// REQUIRES: the GIL.
std::string text_of(const py::object& frame, const std::string& file) {
  const auto line = frame.attr("f_lineno").cast<int>();
  const auto function = frame.attr("f_code").attr("co_name").cast<std::string>();
  std::string text = file.substr(file.rfind('/') + 1) + ":" + std::to_string(line);
  if (function != "<module>") text += " in " + function;
  return std::string(cut(printable(text), protocol::kSiteBytesMax));
}

}  // namespace

std::string call_site() {
  const py::gil_scoped_acquire gil;
  static const auto& packages = *new std::vector<std::string>(folders_of_packages());
  auto frame = py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame && !frame.is_none()) {
    const auto file = frame.attr("f_code").attr("co_filename").cast<std::string>();
    const auto holds = [&file](const std::string& folder) { return file.starts_with(folder); };
    if (std::none_of(packages.begin(), packages.end(), holds)) return text_of(frame, file);
    frame = frame.attr("f_back");
  }
  return {};
}

}  // namespace pccl::torch_layer
