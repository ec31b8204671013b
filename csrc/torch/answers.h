// answers: results of a peer as plain Python values: dicts and lists of numbers and texts. The keys
// match pccl_backend/api.py, which turns the dicts into its dataclasses.
// REQUIRES: the caller holds the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

#include "csrc/peer/shell/peer.h"

namespace pccl::torch_layer {

// For update_topology().
pybind11::dict topology_answer(const peer::Topology& topology);
// For optimize_topology(). Times are in seconds, rates in bytes per second, or None.
pybind11::dict plan_answer(const protocol::TopologyPlan& plan);
// For sync_shared_state(). Sizes are in bytes; "added" has names and tensors, "corrected" names.
pybind11::dict state_answer(const peer::JointResult& result);
// For run_info(). Times are in seconds.
pybind11::dict info_answer(const peer::Info& info);
// For contributors(): [(end, [peer, ...]), ...]. `end` counts the elements of the tensors, which
// have `elements` elements together. A complex element is reduced as two real numbers, and counts
// once here.
pybind11::list parts_answer(const std::vector<peer::Part>& parts, uint64_t elements);

}  // namespace pccl::torch_layer
