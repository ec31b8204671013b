#include "csrc/ring/announce.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::ring {
namespace {

constexpr uint64_t kProgressSteps = 64;

}  // namespace

void announce_progress(Operation& operation, Effects& effects) {
  if (!operation.task.keep || operation.schedule.row().is_one_shot()) return;
  const uint64_t finished = operation.finished_elements();
  const uint64_t news = std::max(operation.task.shape.count / kProgressSteps, uint64_t{1});
  if (finished < operation.announced_finished + news) return;
  operation.announced_finished = finished;
  effects.push_back(
      OpProgressed{operation.task.epoch, operation.task.op, finished, operation.absent()});
}

void announce_if_transferred(Operation& operation, Effects& effects) {
  if (operation.whole != nullptr) {
    if (operation.progress.finished()) announce_if_transferred(*operation.whole, effects);
    return;
  }
  if (operation.announced_transferred || !operation.finished()) return;
  operation.announced_transferred = true;
  effects.push_back(OpTransferred{operation.task.epoch, operation.task.op, operation.absent()});
}

}  // namespace pccl::ring
