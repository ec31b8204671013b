// Journal: the records that a master must not forget, as bytes in a file that only grows. The file
// is a header, the length of its compact form, then frames.
//   header   "pccljrnl" | u32 version | 16 bytes: the release of pccl that wrote it, and zeros |
//            u32 checksum
//   length   u64 bytes of the compact form, from the first byte of the file | u32 checksum
//   frame    u32 length of the payload | u32 checksum of length and payload | payload
//   payload  entries: u8 kind | fields (journal.cc, wire.h)
// The compact form is the beginning of the file. It is durable before the file gets its name
// (journal_file.cc). Each later frame is appended by one write and one wait for the disk.
// Pure functions and values: journal_file.h has the file, and the simulator has a disk of its own.
// Failure: if the last appended frame is cut off or garbage, it is dropped. Its write was never
// completed, so no peer received its content. Damage before the last frame is an error with its
// position. A file that ends within its compact form is an error too, since no crash of a master
// leaves one: it is, for example, a part of a copy.
// Versions: only version 9 is written and read. The header has the same layout in every version, so
// that a refusal can name the release that reads the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/result.h"
#include "master/runs/records.h"

namespace pccl::master {

// The master was started.
struct Started {
  uint32_t incarnation = 0;
  bool operator==(const Started&) const = default;
};
// The run begins to live; the shared states of an earlier life are kept.
struct RunOpened {
  std::string run;
  uint64_t run_id = 0;
  std::string origin;                            // the network of the peer that opened it
  uint16_t version = protocol::kSpoken.highest;  // the protocol version that the run speaks
  protocol::Key decisions = {};                  // Options::decisions
  bool operator==(const RunOpened&) const = default;
};
// The life of the run is over: only its shared states are kept. `ended` is in seconds of the system
// clock.
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

// The combined effect of all entries so far.
struct Memory {
  uint32_t incarnation = 0;  // of the last start; 0: none
  std::map<std::string, RunRecord> runs;

  // Ignores records of a run that was not opened. Forgets a group without members, because
  // otherwise the run would grow with every group that comes and goes.
  void apply(const Entry& entry);
  bool operator==(const Memory&) const = default;
};

namespace journal {

// The beginning of a journal whose compact form has no frame: header and length.
std::vector<std::byte> header();
// Appends a frame with these entries. REQUIRES: at least one.
void append(const std::vector<Entry>& entries, std::vector<std::byte>& out);
// Writes the compact form: the shortest journal of the same memory, header included, in pieces.
// Each piece consists of whole frames, and its size does not grow with the number of runs. `write`
// must use a piece before it returns.
void compact(const Memory& memory, const std::function<void(const std::vector<std::byte>&)>& write);
std::vector<std::byte> compacted(const Memory& memory);  // in one piece

struct Replayed {
  Memory memory;
  size_t bytes = 0;  // up to the end of the last intact frame; the rest is torn, and to be cut off
};
// `file`: its whole content. An empty file is a journal without entries. Fails with kSystem if the
// file is not a journal, is shorter than its compact form, is damaged, or has a version that is not
// read here.
Result<Replayed> replay(std::span<const std::byte> file);

}  // namespace journal
}  // namespace pccl::master
