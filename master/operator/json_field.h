// text_at() reads a field of a JSON object that comes from outside. A pure function.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace pccl::master {

// Returns null if there is no such field, or it is not a string.
inline const std::string* text_at(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
}

}  // namespace pccl::master
