#include "csrc/base/log_record.h"

#include <string_view>

#include "csrc/base/clock.h"
#include "csrc/base/text.h"

namespace pccl {
namespace {

// Printable text has no other characters that JSON forbids in a string.
void append_json(std::string& line, std::string_view name, std::string_view value) {
  line.append(line.empty() ? "{\"" : ",\"").append(name).append("\":\"");
  for (const char letter : printable(value)) {
    if (letter == '"' || letter == '\\') line.push_back('\\');
    line.push_back(letter);
  }
  line.push_back('"');
}

void append_json(std::string& line, std::string_view name, uint32_t value) {
  line.append(",\"").append(name).append("\":").append(std::to_string(value));
}

}  // namespace

const char* text(LogLevel level) {
  constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  return kNames[static_cast<int>(level)];
}

std::string text(const LogSubject& about) {
  std::string words = about.run.empty() ? "" : "run \"" + about.run + "\"";
  const auto add = [&words](const char* what, uint32_t number) {
    words.append(words.empty() ? "" : ", ").append(what).append(std::to_string(number));
  };
  if (about.group.value_or(0) != 0) add("group ", *about.group);
  if (about.rank) add("rank ", *about.rank);
  return words;
}

std::string message(const LogRecord& record) {
  return record.lead.empty() ? printable(record.text)
                             : printable(record.lead) + ": " + printable(record.text);
}

std::string text_line(const LogRecord& record) {
  const std::string head = "pccl " + iso_text(record.since_1970) + " " + text(record.level);
  return head + ": " + message(record) + "\n";
}

std::string json_line(const LogRecord& record) {
  const LogSubject& about = record.about;
  std::string line;
  append_json(line, "time", iso_text(record.since_1970));
  append_json(line, "level", text(record.level));
  append_json(line, "event", text(record.event));
  if (!about.run.empty()) append_json(line, "run", about.run);
  if (about.group) append_json(line, "group", *about.group);
  if (!about.peer.empty()) append_json(line, "peer", about.peer);
  if (about.rank) append_json(line, "rank", *about.rank);
  if (!about.epoch.empty()) append_json(line, "epoch", about.epoch);
  append_json(line, "text", record.text);
  return line.append("}\n");
}

}  // namespace pccl
