#include "csrc/torch/kernels_library.h"

#include <dlfcn.h>

#include <filesystem>

#include "csrc/base/log.h"

namespace pccl::torch_layer {
namespace {

constexpr const char* kFileName = "libpccl_cuda.so";

// The file beside the library that contains this code.
std::filesystem::path place() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&kernels_library), &info) == 0) return kFileName;
  return std::filesystem::path(info.dli_fname).parent_path() / kFileName;
}

// Looks up functions, and remembers the first one that is missing.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

// Returns the reason why the library is not usable, or "". The version of the interface is checked
// first, because a library of another version may have other functions.
std::string refuse(Symbols& symbols, KernelsLibrary& library) {
  decltype(&pccl_cuda_api_version) api_version = nullptr;
  symbols.find("pccl_cuda_api_version", api_version);
  if (api_version != nullptr && api_version() != PCCL_CUDA_API_VERSION) {
    return "it has version " + std::to_string(api_version()) +
           " of the interface, and pccl needs " + std::to_string(PCCL_CUDA_API_VERSION) +
           ": build pccl again";
  }
  decltype(&pccl_cuda_device_count) device_count = nullptr;
  symbols.find("pccl_cuda_device_count", device_count);
  symbols.find("pccl_cuda_error_text", library.error_text);
  symbols.find("pccl_cuda_hash_workspace", library.hash_workspace);
  symbols.find("pccl_cuda_hash", library.hash);
  symbols.find("pccl_cuda_hash_values", library.hash_values);
  if (!symbols.missing().empty()) return "it has no function " + symbols.missing();
  int count = 0;
  if (const int status = device_count(&count); status != 0) {
    return "CUDA finds no device (" + std::string(library.error_text(status)) + ")";
  }
  return "";
}

KernelsLibrary load() {
  const std::filesystem::path file = place();
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return {.state = "absent"};
  // The symbols of the library stay invisible to other libraries: it contains a CUDA runtime, and
  // torch has another one.
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {.state = dlerror()};
  KernelsLibrary library;
  Symbols symbols(handle);  // never closed: the CUDA runtime in it does not support that
  if (std::string reason = refuse(symbols, library); !reason.empty()) {
    return {.state = file.string() + ": " + reason};
  }
  library.state = "loaded";
  return library;
}

KernelsLibrary load_and_log() {
  KernelsLibrary library = load();
  if (library.loaded()) {
    log(LogLevel::kInfo, "the CUDA kernels are loaded");
  } else if (library.state == "absent") {
    log(LogLevel::kInfo, "this build has no CUDA kernels: the host does their work");
  } else {
    log(LogLevel::kWarning,
        "the CUDA kernels cannot be used, and the host does their work: " + library.state);
  }
  return library;
}

}  // namespace

const KernelsLibrary& kernels_library() {
  static const KernelsLibrary library = load_and_log();
  return library;
}

}  // namespace pccl::torch_layer
