// log: writes one line to stderr for each event that deserves a person's attention. PCCL_LOG
// chooses the level (error, warning, info, debug; default warning).
// Any thread may call it. Each line is written whole. Text from outside cannot forge a line:
// unprintable characters (text.h) are escaped. Cores do not log: they emit a Log effect.
#pragma once

#include <string_view>

namespace pccl {

enum class LogLevel { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Writes "pccl 12:34:56.789 warning: <message>" if `level` is enabled.
void log(LogLevel level, std::string_view message);

// Sets the level by its name, from the environment or a command line. Returns false, and changes
// nothing, if the name is unknown.
bool set_log_level(std::string_view name);

}  // namespace pccl
