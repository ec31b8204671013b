// log: one line on stderr per event worth a person's attention, at a level chosen by PCCL_LOG
// (error, warning, info, debug; default warning). Any thread may call it; a line is written whole.
// Texts of others forge no line: what is not printable (text.h) is escaped. Cores do not log: they
// emit a Log effect.
#pragma once

#include <string_view>

namespace pccl {

enum class LogLevel { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Writes "pccl 12:34:56.789 warning: <message>" when `level` is enabled.
void log(LogLevel level, std::string_view message);

// REQUIRES: a value from the environment or a command line. Returns false, and changes nothing,
// when it is unknown.
bool set_log_level(std::string_view name);

}  // namespace pccl
