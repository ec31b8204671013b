// Command: runs a line of the shell (/bin/sh) once, with a text as its standard input. Its standard
// output goes nowhere, and its stderr is ours. It belongs to a loop, on whose thread it is created,
// called and destroyed. The start of a process may take some milliseconds, so that loop serves
// nothing that is urgent.
// Invariants:
// 1. `on_end` is called once, in a later turn of the loop, unless the Command is destroyed before.
// 2. No process of the line outlives `limit` or the Command, except one that leaves the process
//    group of the line.
// Failure: on_end() gets kSystem with what happened: the line could not be started, has ended with
// another status than 0 or by a signal, or took longer than `limit`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/net/loop.h"

namespace pccl::net {

class Command {
 public:
  using OnEnd = std::function<void(const Status&)>;
  Command(Loop& loop, const std::string& line, const std::string& input, Duration limit,
          OnEnd on_end);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

 private:
  class Child;
  void end(const Status& status);

  const OnEnd on_end_;
  const Duration limit_;
  std::shared_ptr<Child> child_;  // null: not started, or ended; libuv closes it one turn later
  std::unique_ptr<Timer> timer_;  // the limit, or the report of a failed start
};

}  // namespace pccl::net
