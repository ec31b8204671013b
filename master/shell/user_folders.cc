#include "master/shell/user_folders.h"

#include <cstdlib>

namespace pccl::master {
namespace {

// The value of a variable that has an absolute path. The specification ignores other values.
std::optional<std::string> folder_in(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value != '/') return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> state_folder() {
  if (const auto state = folder_in("XDG_STATE_HOME")) return *state + "/pccl/";
  if (const auto home = folder_in("HOME")) return *home + "/.local/state/pccl/";
  return std::nullopt;
}

std::vector<std::string> socket_folders() {
  std::vector<std::string> folders;
  if (const auto runtime = folder_in("XDG_RUNTIME_DIR")) folders.push_back(*runtime + "/pccl/");
  if (const auto state = state_folder()) folders.push_back(*state);
  return folders;
}

}  // namespace pccl::master
