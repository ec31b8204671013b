// JournalFile: the journal of one master on its disk (journal.h has the bytes). Locked against a
// second master. Writes on a thread of its own, so that nobody waits for the disk but whoever asked
// for the write; what is asked for while one is under way goes into the next frame together.
// Now and then, and at every start, the file is replaced by a short one that says the same.
// Failure: what could not be written is not known to be written; the first failure is told to
// `on_failure`, nothing is written any more, and the master has to end (its peers wait for the
// next).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "csrc/base/status.h"
#include "master/journal.h"

namespace pccl::master {

class JournalFile {
 public:
  // `path` and its folder are made if they do not exist. The start is recorded, with an incarnation
  // above all before it and no lower than `incarnation_min`. `fresh`: what there is stays behind
  // under another name, and is not read. kSystem with what to do: in use, damaged, not writable, no
  // file (nothing here waits for a FIFO or follows a link that somebody put in place of one of its
  // files).
  static Result<std::unique_ptr<JournalFile>> open(const std::string& path, bool fresh,
                                                   uint32_t incarnation_min,
                                                   std::function<void(const Status&)> on_failure);
  ~JournalFile();  // after all that was asked for has been written

  // The content of the journal when it was opened, this start included. To be called once.
  Memory take_memory();
  // Any thread. In order. `then` is called on the journal's thread, when the entry is durable.
  void write(Entry entry, std::function<void()> then);

 private:
  struct Inside;
  JournalFile();
  std::unique_ptr<Inside> inside_;
};

}  // namespace pccl::master
