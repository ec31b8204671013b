// handlers(...): a function that hands each DataEvent to the handler of its type. Events without a
// handler are ignored.
#pragma once

#include <functional>
#include <type_traits>
#include <variant>

#include "csrc/ring/data_event.h"

namespace pccl::ring {

template <typename... F>
struct Handlers : F... {
  using F::operator()...;
};

template <typename... F>
std::function<void(DataEvent)> handlers(F... each) {
  return [all = Handlers<F...>{each...}](const DataEvent& event) {
    std::visit(
        [&](const auto& what) {
          if constexpr (std::is_invocable_v<const Handlers<F...>&, decltype(what)>) all(what);
        },
        event);
  };
}

}  // namespace pccl::ring
