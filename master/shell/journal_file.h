// JournalFile: the journal of one master on its disk (journal.h defines the bytes). A lock keeps a
// second master out. Runs owns it. It writes on a thread of its own, so that only the caller
// of a write waits for the disk. Entries that are requested during a write go into the next frame
// together. The file is replaced by a short one with the same content at every start, and when it
// has grown too much (journal_compaction.h).
// Failure: an entry that could not be written is never reported as durable. The first failure is
// reported to `on_failure`, and nothing is written after it. The master must end; its peers wait
// for the next one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "csrc/base/result.h"
#include "master/operator/metrics.h"
#include "master/runs/journal.h"

namespace pccl::master {

class JournalFile {
 public:
  // Creates `path` and its folder if they do not exist. Records the start, with an incarnation
  // above all earlier ones and at least `incarnation_min`. `fresh`: an existing journal is renamed
  // and not read. Fails with kSystem and advice if the journal is in use, damaged, not writable, or
  // not a file. It never waits for a FIFO, and never follows a link that somebody put in place of
  // one of its files.
  static Result<std::unique_ptr<JournalFile>> open(const std::string& path, bool fresh,
                                                   uint32_t incarnation_min,
                                                   std::function<void(const Status&)> on_failure);
  ~JournalFile();  // returns after all requested entries were written

  // The content of the journal when it was opened, this start included. Must be called once.
  Memory take_memory();
  // Any thread. Entries keep their order. `then` is called on the journal's thread when the entry
  // is durable.
  void write(Entry entry, std::function<void()> then);
  // Any thread. The entries that are durable, and whether a write has failed.
  JournalCounts counts() const;

 private:
  struct Impl;
  JournalFile();
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::master
