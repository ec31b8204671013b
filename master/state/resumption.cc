#include "master/state/resumption.h"

#include <charconv>

namespace pccl::master {
namespace {

template <typename... Base>
bool parse(const std::string& text, uint64_t& number, Base... base) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number, base...);
  return error == std::errc() && at == end;
}

}  // namespace

std::optional<Resumption> parse_resumption(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string hash = text.substr(colon + 1);
  if (hash.starts_with("0x")) hash.erase(0, 2);
  Resumption where;
  const bool fine = parse(text.substr(0, colon), where.revision) && parse(hash, where.hash, 16);
  return fine ? std::optional(where) : std::nullopt;
}

Result<std::vector<Entry>> resume_from(const Memory& memory, const Resumption& where,
                                       uint64_t new_run_id) {
  std::string run = where.run;
  if (run.empty() && memory.runs.size() != 1) {
    std::string names;
    for (const auto& [name, record] : memory.runs) names += (names.empty() ? "" : ", ") + name;
    return Status{Code::kInvalidArgument,
                  memory.runs.empty() ? "the journal knows no run: name the one that --resume-from "
                                        "is for with --run"
                                      : "the journal knows the runs " + names +
                                            ": name the one that --resume-from is for with --run",
                  {}};
  }
  if (run.empty()) run = memory.runs.begin()->first;
  std::vector<Entry> entries;
  if (!memory.runs.contains(run)) entries.emplace_back(RunOpened{run, new_run_id, {}});
  MembershipRecord nobody;
  nobody.group = where.group;
  entries.emplace_back(RunRecorded{run, nobody});
  entries.emplace_back(
      RunRecorded{run, SharedStateRecord{where.group, where.revision, where.hash}});
  return entries;
}

}  // namespace pccl::master
