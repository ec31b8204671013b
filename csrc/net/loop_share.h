// LoopShare: one owner's share of a Loop. The objects of several owners can be on one loop, and
// each owner ends its own part without ending the loop. The loop ends with the last share.
// Any thread may call the methods, unless stated otherwise.
//   1. Tasks run on the loop in the order of the post() calls.
//   2. end() closes the share: it runs all tasks posted before, then the task `last`, and drops
//      tasks posted later. `last` destroys the objects of this owner that are on the loop.
//   3. In a forked child there is no thread: post() drops its task, and end() does nothing.
// Failure: if the loop cannot start, status() returns the error and every task is dropped, even the
// task of end().
#pragma once

#include <functional>
#include <memory>

#include "csrc/net/loop.h"

namespace pccl::net {

class LoopShare {
 public:
  explicit LoopShare(std::shared_ptr<Loop> loop);
  // REQUIRES: end() was called, or nothing on the loop needs this owner any more.
  ~LoopShare();
  LoopShare(const LoopShare&) = delete;
  LoopShare& operator=(const LoopShare&) = delete;

  const Status& status() const;
  void post(std::function<void()> task);
  // Blocks until `last` has run. Idempotent. REQUIRES: not on the loop.
  void end(std::function<void()> last);

  bool on_loop() const;
  void assert_on_loop(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;
  // Returns the loop, for the objects on it. REQUIRES: before end(), or on the loop.
  Loop& loop();

 private:
  const std::shared_ptr<Loop::Impl> impl_;
  const std::shared_ptr<bool> ended_ = std::make_shared<bool>(false);  // used on the loop only
  std::shared_ptr<Loop> loop_;                                         // null after end()
};

}  // namespace pccl::net
