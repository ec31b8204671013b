#include "master/operator/course.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "master/epochs/present_epoch.h"

namespace pccl::master {

using nlohmann::json;

void add_course(json& group, const PresentEpoch& present, Instant now) {
  json operations = json::array(), bytes = json::array();
  json losses = json::array(), joins = json::array();
  for (const Statistics::Point& point : present.statistics().hour(now)) {
    operations.push_back(point.operations);
    bytes.push_back(point.bytes);
    losses.push_back(point.losses);
    joins.push_back(point.joins);
  }
  group["history"] = {{"step_s", to_seconds(Statistics::kStep)},
                      {"operations", std::move(operations)},
                      {"bytes", std::move(bytes)},
                      {"losses", std::move(losses)},
                      {"joins", std::move(joins)}};
  json scalars = json::object();
  for (const auto& [name, points] : present.scalars().all()) {
    json all = json::array();
    for (const ScalarHistory::Point& point : points) {
      const auto ago = (now - point.at) / std::chrono::milliseconds(100);
      all.push_back({static_cast<double>(ago) / 10, point.mean});
    }
    scalars[name] = std::move(all);
  }
  group["scalars_history"] = std::move(scalars);
}

}  // namespace pccl::master
