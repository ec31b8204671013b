// change_list(): changes a SharedList, of which other copies stay as they are.
#pragma once

#include <utility>

#include "csrc/base/shared_list.h"

namespace pccl {

template <typename T>
void change_list(SharedList<T>& list, const auto& change) {
  std::vector<T> changed = list;
  change(changed);
  list = std::move(changed);
}

}  // namespace pccl
