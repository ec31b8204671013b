// forks(): how often this process was forked since the module was loaded by an ancestor. What has
// threads remembers the number it was made under: under another one the threads are not there, and
// neither waiting for them nor ending them can work. Any thread may call it.
#pragma once

#include <cstdint>

namespace pccl::torch_layer {

uint64_t forks();

}  // namespace pccl::torch_layer
