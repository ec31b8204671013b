// record: binds a plain struct as a Python class. The constructor takes every field by keyword, and
// each field is an attribute that can be read and written. Each name stands once, beside its
// member.
// Call it with the GIL, while the module is loaded.
// Failure: Python raises TypeError if a field is missing or unknown, or has another type.
#pragma once

#include <pybind11/pybind11.h>

#include <type_traits>
#include <utility>

namespace pccl::torch_layer {

template <typename Struct, typename Value>
struct Field {
  const char* name;
  Value Struct::*member;
};
template <typename Struct, typename Value>
Field(const char*, Value Struct::*) -> Field<Struct, Value>;

template <typename Struct, typename... Values>
void bind_record(pybind11::module_& m, const char* name, Field<Struct, Values>... fields) {
  pybind11::class_<Struct> bound(m, name);
  bound.def(pybind11::init([fields...](Values... values) {
              Struct record;
              ((record.*fields.member = std::move(values)), ...);
              return record;
            }),
            pybind11::kw_only(),
            // Without conversion for a bool: pybind would take None for false.
            pybind11::arg(fields.name).noconvert(std::is_same_v<Values, bool>)...);
  (bound.def_readwrite(fields.name, fields.member), ...);
}

}  // namespace pccl::torch_layer
