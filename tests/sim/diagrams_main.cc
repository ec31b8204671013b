// pccl-diagrams [--update] FILE: draws the state machines of the library as a page that GitHub
// renders, and compares it with the file. --update rewrites the file. The exit status is 1 if they
// differ, or if a table is not sound.
#include <cctype>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "csrc/base/transitions.h"
#include "tests/cpp/base/table_faults.h"

namespace {

using pccl::TransitionTable;

constexpr const char* kHead =
    "# State machines\n"
    "\n"
    "`make diagrams` draws this page from the transition tables in the sources: edit a table, not "
    "this page.\n"
    "`csrc/base/transitions.h` says what a table is. The number at an arrow is that of a row below "
    "the diagram. A row can have\n"
    "several events; semicolons separate them. An event or an effect with a capital letter is a "
    "message, or a struct of the core.\n";

// Mermaid's name of a state.
std::string id(std::string state) {
  for (char& c : state) {
    if (c == ' ') c = '_';
  }
  return state;
}

std::string diagram(const TransitionTable& table) {
  std::string titles, arrows;
  std::set<std::string> titled;
  const auto use = [&](const std::string& state) {
    if (id(state) != state && titled.insert(state).second)
      titles += "    state \"" + state + "\" as " + id(state) + "\n";
    return id(state);
  };
  arrows += "    [*] --> " + use(table.row(0).from) + "\n";
  for (size_t row = 0; row < table.size(); ++row) {
    const auto [from, to, event, effect] = table.row(row);
    arrows += "    " + use(from) + " --> " + use(to) + " : " + std::to_string(row + 1) + "\n";
  }
  return "```mermaid\nstateDiagram-v2\n" + titles + arrows + "```\n";
}

std::string section(const TransitionTable& table) {
  std::string title = table.machine();
  title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
  std::string out = "\n## " + title + "\n\n" + diagram(table) + "\n";
  out += "| | From | To | Event | Effect |\n|---|---|---|---|---|\n";
  for (size_t row = 0; row < table.size(); ++row) {
    const auto [from, to, event, effect] = table.row(row);
    out += "| " + std::to_string(row + 1);
    for (const char* cell : {from, to, event, effect}) {
      out += *cell == '\0' ? " |" : " | " + std::string(cell);
    }
    out += " |\n";
  }
  return out;
}

// Prints the faults of all tables. Returns whether there was none.
bool sound() {
  std::string all;
  std::set<std::string> machines;
  for (const TransitionTable* table : TransitionTable::all()) {
    const std::string machine = table->machine();
    if (!machines.insert(machine).second) all += machine + ": two machines have this name\n";
    std::istringstream faults(pccl::faults_of(*table));
    for (std::string fault; std::getline(faults, fault);) all += machine + ": " + fault + "\n";
  }
  if (machines.empty()) all += "no table is linked\n";
  std::fputs(all.c_str(), stderr);
  return all.empty();
}

}  // namespace

int main(int argc, char** argv) {
  const bool update = argc > 2 && std::strcmp(argv[1], "--update") == 0;
  if (argc != (update ? 3 : 2)) {
    std::fprintf(stderr, "usage: pccl-diagrams [--update] FILE\n");
    return 2;
  }
  if (!sound()) return 1;
  std::string page = kHead;
  for (const TransitionTable* table : TransitionTable::all()) page += section(*table);
  const char* const path = argv[argc - 1];
  if (update) {
    std::ofstream file(path);
    file << page << std::flush;
    if (file) return 0;
    std::fprintf(stderr, "cannot write %s\n", path);
    return 1;
  }
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  if (content.str() == page) return 0;
  std::fprintf(stderr, "%s differs from the tables in the sources: run `make diagrams`\n", path);
  return 1;
}
