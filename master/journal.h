// Journal: what a master must not forget, as bytes in a file that only grows: a header, then
// frames, each the work of one write and of one wait for the disk.
//   header   "pccljrnl" | u32 version | 16 bytes: the release of pccl that wrote it, and zeros |
//            u32 checksum
//   frame    u32 length of the payload | u32 checksum of length and payload | payload
//   payload  entries: u8 kind | fields (journal.cc, wire.h)
// Pure: shell_journal.h has the file, the simulator a disk of its own. Reading is the other half of
// the promise: a last frame that was cut off or is garbage was never waited for, so nobody was told
// what it says, and it is dropped. Damage before the last frame is an error that says where.
// Versions: version 3 is written. Version 2 is read too: it has no release in its header, and its
// records lack the fields that are marked since(3) in journal.cc. The header keeps its layout in
// every later version, so that a refusal can name the release that reads the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/status.h"
#include "master/records.h"

namespace pccl::master {

// The master was started.
struct Started {
  uint32_t incarnation = 0;
  bool operator==(const Started&) const = default;
};
// The run begins a life; its shared states stay.
struct RunOpened {
  std::string run;
  uint64_t run_id = 0;
  std::string origin;                            // the network of the peer that opened it
  uint16_t version = protocol::kSpoken.highest;  // of the protocol, that it speaks
  bool operator==(const RunOpened&) const = default;
};
// Its life is over: only its shared states stay. In seconds of the system's clock.
struct RunFinished {
  std::string run;
  int64_t ended = 0;
  bool operator==(const RunFinished&) const = default;
};
struct RunForgotten {
  std::string run;
  bool operator==(const RunForgotten&) const = default;
};
struct RunRecorded {
  std::string run;
  Record record;
  bool operator==(const RunRecorded&) const = default;
};
using Entry = std::variant<Started, RunOpened, RunFinished, RunForgotten, RunRecorded>;

// What all entries so far come to.
struct Memory {
  uint32_t incarnation = 0;  // of the last start; 0: none
  std::map<std::string, RunRecord> runs;

  // Ignores a run that was not opened. Forgets a group that has no members left: else the run would
  // grow with every group that comes and goes.
  void apply(const Entry& entry);
  bool operator==(const Memory&) const = default;
};

namespace journal {

std::vector<std::byte> header();
// Appends a frame with these entries. REQUIRES: at least one.
void append(const std::vector<Entry>& entries, std::vector<std::byte>& out);
// The same memory as short as can be, header and all, in pieces of whole frames: none takes much
// memory, however many runs there are. The next piece replaces the last.
void compact(const Memory& memory, const std::function<void(const std::vector<std::byte>&)>& write);
std::vector<std::byte> compacted(const Memory& memory);  // in one

struct Replayed {
  Memory memory;
  size_t bytes = 0;  // that are good: what follows is torn, and to be cut off
};
// Of a whole file. An empty one, or a header that is cut off, is a journal without entries.
// kSystem: it is no journal, or of a version that is not read here, or damaged.
Result<Replayed> replay(std::span<const std::byte> file);

}  // namespace journal
}  // namespace pccl::master
