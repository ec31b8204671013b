// call_site: the line of the application that makes a collective. It is looked up only with
// PCCL_CHECK_CALLSITE=1, because it takes the GIL for some microseconds. Any thread may call it.
#pragma once

#include <string>

namespace pccl::torch_layer {

// "train.py:42 in step": the innermost line of the calling thread that belongs neither to torch nor
// to pccl. Empty if there is none, as on the threads of torch's autograd. At most kSiteBytesMax
// bytes, and printable.
std::string call_site();

}  // namespace pccl::torch_layer
