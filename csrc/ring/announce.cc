#include "csrc/ring/announce.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::ring {
namespace {

constexpr uint64_t kProgressSteps = 64;

}  // namespace

void announce_progress(Operation& operation, Effects& effects) {
  if (!operation.task.keep) return;
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

void combine_if_here(Operation& operation, Effects& effects) {
  PCCL_ASSERT(operation.one_shot.active());
  if (!operation.one_shot.all_here() || operation.combined) return;
  operation.combined = true;
  const auto& parts = operation.task.parts;
  const bool receives = std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
    return part.from > 0 && &part != &parts[operation.task.shape.rank];
  });
  if (receives) effects.push_back(Combine{operation.task.handle, {}, operation.absent().count()});
  announce_if_transferred(operation, effects);
}

}  // namespace pccl::ring
