// user_folders: the folders of the user for the files of a master, by the XDG Base Directory
// Specification. pccl_backend/command/common.py has the same rules. Any thread, as long as no
// thread changes the environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pccl::master {

// The folder of journals and keyrings, with a slash at its end. Nothing if the environment names no
// home.
std::optional<std::string> state_folder();

// The folders for the sockets of masters inside a peer's process, the best one first, each with a
// slash at its end: that of the session ($XDG_RUNTIME_DIR), and the state folder.
std::vector<std::string> socket_folders();

}  // namespace pccl::master
