// CallOptions: options that the collectives of one thread have beside their arguments. Python sets
// the options for a block of code and then restores the earlier values, so that blocks can nest.
// Each thread has its own options.
// Failure: a tag or a priority that the protocol does not allow is refused with ValueError.
#pragma once

#include <string>
#include <string_view>

#include "csrc/base/wire_format.h"

namespace pccl::torch_layer {

struct CallOptions {
  std::string tag;    // empty: the default tag
  bool keep = false;  // all-reduces keep the elements that are finished at a loss (on_loss="keep")
  int priority = 0;   // as in ring::Task
  WireFormat format;  // of the all-reduces that can be quantized
};

// The options of the calling thread.
CallOptions& call_options();

// The beginning of all tags that pccl makes itself.
inline constexpr std::string_view kOwnTags = "pccl:";

// Raises ValueError if the tag is too long, begins like pccl's own tags, or has characters that
// cannot be shown.
void check_tag(const std::string& tag);
// Raises ValueError for a number that is no priority.
void check_priority(int64_t priority);

}  // namespace pccl::torch_layer
