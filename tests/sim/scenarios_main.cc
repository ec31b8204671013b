// pccl-scenarios [--update] FOLDER: runs every *.txt of the folder and compares the transcripts
// with those in the file. --update rewrites them: read the difference before you commit it.
// pccl-scenarios --snapshot FILE: performs the commands in this file, and prints what the master
// knows at their end, as JSON.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/sim/scenario.h"

namespace {

constexpr const char* kRule = "----\n";

// The file as it should be: the commands of each block with the transcript that they give now.
std::string replay(const std::string& file) {
  std::string out;
  size_t at = 0;
  while (at < file.size()) {
    const size_t rule = file.find(kRule, at);
    const std::string commands = file.substr(at, rule == std::string::npos ? rule : rule - at);
    out += commands + (commands.ends_with("\n") ? "" : "\n") + kRule +
           pccl::sim::run_scenario(commands);
    if (rule == std::string::npos) break;
    const size_t end = file.find("\n\n", rule);  // an empty line ends a block
    if (end == std::string::npos) break;
    out += "\n";
    at = end + 2;
  }
  return out;
}

// The lines of unmet expectations.
std::string unmet_lines(const std::string& now) {
  std::istringstream lines(now);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(pccl::sim::kUnmet) != std::string::npos) out += "  " + line + "\n";
  }
  return out;
}

std::string first_difference(const std::string& expected, const std::string& now) {
  std::istringstream a(expected), b(now);
  std::string x, y;
  for (int line = 1;; ++line) {
    const bool more_a = static_cast<bool>(std::getline(a, x)),
               more_b = static_cast<bool>(std::getline(b, y));
    if (!more_a && !more_b) return "";
    if (more_a && more_b && x == y) continue;
    return "  line " + std::to_string(line) + "\n    expected: " + (more_a ? x : "(end)") +
           "\n    now:      " + (more_b ? y : "(end)") + "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--snapshot") == 0) {
    std::stringstream commands;
    commands << std::ifstream(argv[2]).rdbuf();
    std::printf("%s\n", pccl::sim::snapshot_after(commands.str()).c_str());
    return 0;
  }
  const bool update = argc > 2 && std::strcmp(argv[1], "--update") == 0;
  if (argc != (update ? 3 : 2)) {
    std::fprintf(stderr, "usage: pccl-scenarios [--update] FOLDER, or --snapshot FILE\n");
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[argc - 1])) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  int failed = 0;
  for (const auto& path : files) {
    std::stringstream content;
    content << std::ifstream(path).rdbuf();
    const std::string now = replay(content.str());
    if (now == content.str()) continue;
    const std::string unmet = unmet_lines(now);
    if (update && unmet.empty()) {
      std::ofstream(path) << now;
      std::printf("rewritten: %s\n", path.filename().c_str());
    } else {
      ++failed;
      std::printf("%s tells another story:\n%s%s", path.filename().c_str(),
                  first_difference(content.str(), now).c_str(), unmet.c_str());
    }
  }
  std::printf("%zu passed, %d failed\n", files.size() - static_cast<size_t>(failed), failed);
  return failed > 0 || files.empty() ? 1 : 0;
}
