#include "csrc/torch/answers.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/torch/borrowed_state.h"

namespace pccl::torch_layer {

namespace py = pybind11;

namespace {

py::list texts(const std::vector<PeerId>& peers) {
  py::list list;
  for (const PeerId peer : peers) list.append(text(peer));
  return list;
}

py::list members_of(const peer::Topology& topology) {
  py::list list;
  for (const protocol::Member& member : topology.members) {
    py::dict dict;
    dict["peer"] = text(member.peer);
    dict["name"] = member.name;
    dict["address"] = member.address;
    list.append(std::move(dict));
  }
  return list;
}

py::list links_of(const ring::DataCounters& counters) {
  py::list list;
  for (const auto& link : counters.links) {
    py::dict dict;
    dict["peer"] = text(link.peer);
    dict["connection"] = link.serial;
    dict["lanes"] = link.lanes;
    dict["lanes_used"] = link.lanes_used;
    dict["rtt"] = to_seconds(link.rtt);
    dict["rate"] = link.rate > 0 ? py::object(py::int_(link.rate)) : py::object(py::none());
    dict["bytes_sent"] = link.bytes_sent;
    dict["bytes_received"] = link.bytes_received;
    dict["send_calls"] = link.send_calls;
    dict["receive_calls"] = link.receive_calls;
    list.append(std::move(dict));
  }
  return list;
}

py::dict time_of(const peer::TimeTotals& time) {
  py::dict dict, waiting_for;
  for (const auto& [peer, duration] : time.waiting_for)
    waiting_for[py::str(text(peer))] = to_seconds(duration);
  dict["all"] = to_seconds(time.all);
  dict["computing"] = to_seconds(time.computing());
  dict["waiting"] = to_seconds(time.waiting);
  dict["waiting_for"] = std::move(waiting_for);
  dict["transferring"] = to_seconds(time.transferring);
  dict["joint"] = to_seconds(time.joint);
  dict["saving"] = to_seconds(time.saving);
  dict["failing"] = to_seconds(time.failing);
  dict["other_threads"] = to_seconds(time.elsewhere);
  return dict;
}

py::list history_of(const std::vector<peer::OpRecord>& history) {
  py::list list;
  for (const peer::OpRecord& record : history) {
    py::dict dict;
    dict["operation"] = record.text;
    dict["outcome"] = record.outcome;
    dict["bytes"] = record.bytes;
    dict["seconds"] = record.seconds;
    dict["commit_seconds"] = record.commit_seconds;
    list.append(std::move(dict));
  }
  return list;
}

// None if all all-reduces go around the ring.
py::object direct_of(const std::vector<uint16_t>& shares, const protocol::DirectSizes& direct) {
  if (shares.empty()) return py::none();
  const auto [from, to] = direct;
  const bool limited = to != protocol::DirectSizes{}.to;
  return py::make_tuple(from, limited ? py::object(py::int_(to)) : py::object(py::none()));
}

py::object or_none(uint64_t value, double scale = 1) {
  if (value == 0) return py::none();
  return py::float_(static_cast<double>(value) * scale);
}

py::list pairs_of(const std::vector<protocol::RankPair>& pairs) {
  py::list list;
  for (const protocol::RankPair& pair : pairs) list.append(py::make_tuple(pair.low, pair.high));
  return list;
}

// A row for each rank, with the rates to all ranks.
py::list matrix_of(const protocol::TopologyPlan& plan) {
  const size_t members = plan.ring.size();
  py::list rows;
  for (size_t from = 0; from < members; ++from) {
    py::list row;
    for (size_t to = 0; to < members; ++to) {
      const size_t at = from * members + to;
      row.append(or_none(at < plan.rates.size() ? plan.rates[at] : 0));
    }
    rows.append(std::move(row));
  }
  return rows;
}

void put_settings(const protocol::RunSettings& settings, py::dict& dict) {
  const bool chosen = settings.pattern != protocol::PatternChoice::kAny;
  const Duration call = settings.call_timeout;
  dict["on_peer_loss"] = text(settings.on_peer_loss);
  dict["pattern"] = chosen ? py::object(py::str(text(settings.pattern))) : py::object(py::none());
  dict["peer_timeout"] = to_seconds(settings.peer_timeout);
  dict["first_call_timeout"] = to_seconds(settings.first_call_timeout);
  dict["call_timeout"] =
      call > Duration{0} ? py::object(py::float_(to_seconds(call))) : py::object(py::none());
}

}  // namespace

py::dict plan_answer(const protocol::TopologyPlan& plan) {
  constexpr double kMicrosecond = 1e-6;
  py::dict dict;
  dict["epoch"] = text(Epoch{plan.epoch});
  dict["adopted"] = plan.adopted;
  dict["ring"] = plan.ring;
  dict["shares"] = plan.shares;
  dict["direct"] = direct_of(plan.shares, plan.direct);
  dict["predicted_before"] = or_none(plan.before_us, kMicrosecond);
  dict["predicted"] = or_none(plan.after_us, kMicrosecond);
  dict["rates"] = matrix_of(plan);
  dict["measured"] = pairs_of(plan.measured);
  dict["missing"] = pairs_of(plan.missing);
  dict["note"] = plan.note;
  return dict;
}

py::dict topology_answer(const peer::Topology& topology) {
  py::dict dict;
  dict["epoch"] = text(topology.epoch);
  dict["rank"] = topology.rank;
  dict["world_size"] = topology.members.size();
  dict["joined"] = texts(topology.joined);
  dict["left"] = texts(topology.left);
  return dict;
}

py::dict info_answer(const peer::Info& info) {
  py::dict dict = topology_answer(info.topology);
  dict["peer"] = text(info.self);
  dict["run"] = info.run;
  dict["peer_group"] = info.options.group.value;
  dict["master"] = info.options.master_text;
  dict["encrypted"] = info.options.secured;
  dict["min_peers"] = info.options.min_peers;
  dict["master_timeout"] = to_seconds(info.options.master_timeout);
  put_settings(info.settings, dict);
  dict["members"] = members_of(info.topology);
  dict["ring"] = info.topology.ring;
  dict["shares"] = info.topology.shares;
  dict["direct"] = direct_of(info.topology.shares, info.topology.direct);
  dict["one_shot_bytes"] = info.topology.one_shot_bytes;
  dict["broken_by"] = info.broken ? py::object(py::str(info.broken_by)) : py::object(py::none());
  dict["bytes_sent"] = info.data.engine.bytes_sent;
  dict["bytes_received"] = info.data.engine.bytes_received;
  dict["tensor_bytes_sent"] = info.data.engine.tensor_bytes_sent;
  dict["tensor_bytes_received"] = info.data.engine.tensor_bytes_received;
  dict["bytes_held"] = info.data.engine.bytes_held;
  dict["operations_open"] = info.data.engine.operations_open;
  dict["links"] = links_of(info.data);
  dict["history"] = history_of(info.history);
  dict["time"] = time_of(info.time);
  dict["plan"] = info.plan ? py::object(plan_answer(*info.plan)) : py::object(py::none());
  return dict;
}

py::dict state_answer(const peer::JointResult& result) {
  py::dict dict;
  dict["revision"] = result.revision;
  dict["hash"] = result.state_hash;
  dict["tx_bytes"] = result.bytes_sent;
  dict["rx_bytes"] = result.bytes_received;
  py::list added;
  for (const NamedTensor& entry : tensors_of(result.added))
    added.append(py::make_tuple(entry.key, entry.tensor));
  dict["added"] = std::move(added);
  dict["corrected"] = result.corrected;
  dict["drifted"] = result.drifted;
  return dict;
}

py::list parts_answer(const std::vector<peer::Part>& parts, uint64_t elements) {
  py::list list;
  for (const peer::Part& part : parts) {
    const uint64_t width = elements == 0 ? 1 : parts.back().end / elements;
    list.append(py::make_tuple(part.end / width, texts(part.contributors)));
  }
  return list;
}

}  // namespace pccl::torch_layer
