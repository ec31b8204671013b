// hosted_socket: the place of the control socket of a master inside a peer's process. Such a master
// has no journal that the socket could lie beside. So it has a name of its own in a folder that
// `pccl status` searches: PID@HOST.sock, and PID-2@HOST.sock for the second master of a process.
// The name of the host is part of it, because machines may share the folder over a network.
// Any thread.
#pragma once

#include <string>
#include <vector>

#include "csrc/base/result.h"

namespace pccl::master {

// Returns the path for a new socket of this process, in the first of the folders that can be used.
// Makes the folder, for this user only, and removes the sockets of this host there that no process
// listens on. Fails with kSystem and the reason of the last folder.
Result<std::string> hosted_socket_path(const std::vector<std::string>& folders);

}  // namespace pccl::master
