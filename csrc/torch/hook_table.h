// HookTable: functions that others have registered, by a number of their choice, to be called at
// some event. torch calls such functions hooks. Any thread may call the methods.
// Invariants:
// 1. No hook runs, and none is destroyed, while the lock is held. A hook may take the GIL, wait for
//    a lock of its own, or change the table.
// 2. A run that has begun calls the hooks that were there at its beginning. So a hook may still be
//    called shortly after its removal. It lives until it returns.
// 3. A hook is destroyed with the GIL, because it may hold an object of Python. After the end of
//    the interpreter it is never destroyed.
// 4. In a forked child a table of the parent does nothing: another thread may have held its lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "csrc/base/log.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/net/descriptors.h"
#include "csrc/torch/errors.h"

namespace pccl::torch_layer {

template <typename... Args>
class HookTable {
 public:
  using Hook = std::function<void(Args...)>;

  // Replaces an earlier hook of the same number.
  void add(int64_t id, Hook hook) {
    const Shared fresh(new Hook(std::move(hook)),
                       [](const Hook* last) { with_gil([last] { delete last; }); });
    change([&](Table& table) { table[id] = fresh; });
  }
  void remove(int64_t id) {
    change([id](Table& table) { table.erase(id); });
  }
  void clear() {
    change([](Table& table) { table.clear(); });
  }
  bool empty() const { return !any_; }

  // Calls the hooks in the order of their numbers. An exception of a hook ends the run, and passes
  // to the caller.
  void run(Args... args) const {
    const std::shared_ptr<const Table> table = present();
    if (table == nullptr) return;
    for (const auto& [id, hook] : *table) (*hook)(args...);
  }
  // Calls all hooks in the order of their numbers. An exception of one is logged. `what`: the name
  // of such a hook in the log.
  void run_all(const char* what, Args... args) const {
    const std::shared_ptr<const Table> table = present();
    if (table == nullptr) return;
    for (const auto& [id, hook] : *table) {
      const Status status = caught([&, &one = *hook] { one(args...); });
      if (status.ok()) continue;
      const std::string first_line = status.message.substr(0, status.message.find('\n'));
      log(LogLevel::kWarning, LogEvent::kHookFailed,
          std::string(what) + " has raised an error: " + first_line);
    }
  }

 private:
  // Shared with the runs: a copy of a hook from Python would take the GIL.
  using Shared = std::shared_ptr<const Hook>;
  using Table = std::map<int64_t, Shared>;

  std::shared_ptr<const Table> present() const {
    if (!any_ || forks_ != net::fork_count()) return nullptr;
    const Lock lock(mutex_);
    return table_;
  }

  template <typename Change>
  void change(const Change& change_it) {
    if (forks_ != net::fork_count()) return;
    std::shared_ptr<const Table> before;  // destroyed after the lock is released
    const Lock lock(mutex_);
    auto after = std::make_shared<Table>(table_ ? *table_ : Table());
    change_it(*after);
    any_ = !after->empty();
    before = std::exchange(table_, std::move(after));
  }

  const uint64_t forks_ = net::fork_count();
  mutable Mutex mutex_;
  std::shared_ptr<const Table> table_ PCCL_GUARDED_BY(mutex_);  // null: there was no hook yet
  std::atomic<bool> any_{false};
};

}  // namespace pccl::torch_layer
