// mismatch_text: a text for people about an operation that the ranks describe differently. Pure
// functions; Operations compares the descriptions (judge()) and calls them.
#pragma once

#include <string>
#include <vector>

#include "csrc/protocol/messages.h"
#include "master/text_format.h"

namespace pccl::master {

// The description that each rank has given of an operation, by rank; null: it has given none.
using Descriptions = std::vector<const protocol::OpInfo*>;

// "rank 2 called all_reduce(...); ranks 0 and 1 called ...". REQUIRES: some descriptions differ.
std::string mismatch_text(const Descriptions& called, const RankNames& names,
                          const protocol::PeerText& who);

}  // namespace pccl::master
