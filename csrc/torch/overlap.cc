#include "csrc/torch/overlap.h"

#include <ATen/MemoryOverlap.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "csrc/torch/errors.h"

namespace pccl::torch_layer {
namespace {

// torch's own check, at::get_overlap_status, is too weak. It returns "no" if the storages differ as
// objects, though one numpy array may be in both. It returns "too hard" for every tensor that is
// not dense, for example for the columns of a matrix.
//
// The address ranges decide for dense tensors, and nearly all tensors are dense. The ranges of
// other tensors may interleave without a common element, and such outputs are legitimate. For these
// tensors an equation decides exactly. If they are views of one tensor, it is solved in a few
// steps. Strides that were made to defeat the search may need very many steps, so one call takes at
// most kStepsMax steps, which is about a millisecond. Tensors that are undecided by then pass the
// check. This causes no wrong value: one of them is not dense, hence staged, and the stages are
// copied back in a fixed order, so all calls give the same result.
constexpr int64_t kStepsMax = 1 << 16;

struct Dim {
  int64_t count, stride;  // the stride in bytes
};

// The addresses of a tensor's elements in their order; each element has `width` bytes. A Layout has
// as few dimensions as possible, so two tensors with the same addresses in the same order have
// equal layouts.
struct Layout {
  int64_t begin, width;
  c10::SmallVector<Dim, 6> dims;
};

int64_t address_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(tensor.const_data_ptr()));
}

void append(Layout& layout, Dim dim) {
  if (dim.count == 1) return;
  if (!layout.dims.empty() && layout.dims.back().stride == dim.count * dim.stride) {
    layout.dims.back() = {layout.dims.back().count * dim.count, dim.stride};
  } else {
    layout.dims.push_back(dim);
  }
}

Layout layout_of(const at::Tensor& tensor) {
  Layout layout{address_of(tensor), static_cast<int64_t>(tensor.element_size()), {}};
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    append(layout, {tensor.size(i), tensor.stride(i) * layout.width});
  }
  return layout;
}

bool equal(const Layout& left, const Layout& right) {
  return left.begin == right.begin && left.width == right.width &&
         std::ranges::equal(left.dims, right.dims, [](const Dim& a, const Dim& b) {
           return a.count == b.count && a.stride == b.stride;
         });
}

// Whether `small` is part number `part` of the `parts` equal parts of `whole`, in the order of
// elements.
bool is_part(const Layout& small, Layout whole, int64_t part, int64_t parts) {
  Layout wanted{whole.begin, whole.width, {}};
  for (const Dim& dim : whole.dims) {
    const bool divides = dim.count % parts == 0;
    if (!divides && parts % dim.count != 0) return false;  // the part ends within a row
    const int64_t inner = divides ? 1 : parts / dim.count;
    const int64_t count = divides ? dim.count / parts : 1;
    wanted.begin += part / inner * count * dim.stride;
    part %= inner;
    parts = inner;
    append(wanted, {count, dim.stride});
  }
  return equal(small, wanted);
}

// The same bytes as a set, without their order: the widest stride comes first, and adjacent
// elements are merged into one.
Layout as_set(const Layout& ordered) {
  Layout set{ordered.begin, ordered.width, {}};
  auto dims = ordered.dims;
  std::ranges::sort(dims, std::greater<>(), &Dim::stride);
  for (const Dim& dim : dims) {
    if (dim.stride != 0) append(set, dim);
  }
  if (!set.dims.empty() && set.dims.back().stride == set.width) {
    set.width *= set.dims.back().count;
    set.dims.pop_back();
  }
  return set;
}

// --- The equation --------------------------------------------------------------------------------

// A number of steps of one stride: at least `low` and at most `high`.
struct Term {
  int64_t stride, low, high;
};
using Terms = c10::SmallVector<Term, 12>;

int64_t floor_of(int64_t value, int64_t by) {
  return value / by - (value % by != 0 && value < 0 ? 1 : 0);
}

// Whether these terms can make a sum from `low` to `high`. The widest stride is tried first. It has
// few choices, since the narrower strides can add little. REQUIRES: strides above 0, widest first.
bool reaches(std::span<const Term> terms, int64_t low, int64_t high, int64_t& steps_left) {
  if (--steps_left < 0) return false;
  if (terms.empty()) return low <= 0 && high >= 0;
  int64_t divisor = 0, rest_low = 0, rest_high = 0;
  for (const Term& term : terms) divisor = std::gcd(divisor, term.stride);
  // Every sum is a multiple of the divisor.
  if (floor_of(high, divisor) * divisor < low) return false;
  for (const Term& term : terms.subspan(1)) {
    rest_low += term.stride * term.low;
    rest_high += term.stride * term.high;
  }
  const Term& term = terms.front();
  const int64_t first = std::max(term.low, -floor_of(rest_high - low, term.stride));
  const int64_t last = std::min(term.high, floor_of(high - rest_low, term.stride));
  for (int64_t steps = first; steps <= last && steps_left >= 0; ++steps) {
    const int64_t sum = steps * term.stride;
    if (reaches(terms.subspan(1), low - sum, high - sum, steps_left)) return true;
  }
  return false;
}

// Whether two sets share a byte. Elements at the addresses a and b share a byte if a - b is above
// -width(a) and below width(b).
bool share(const Layout& left, const Layout& right, int64_t& steps_left) {
  Terms terms;
  for (const Dim& dim : left.dims) terms.push_back({dim.stride, 0, dim.count - 1});
  for (const Dim& dim : right.dims) terms.push_back({dim.stride, 1 - dim.count, 0});
  std::ranges::sort(terms, std::greater<>(), &Term::stride);
  size_t kept = 0;
  for (size_t i = 1; i < terms.size(); ++i) {  // merges terms of one stride
    if (terms[i].stride == terms[kept].stride) {
      terms[kept].low += terms[i].low;
      terms[kept].high += terms[i].high;
    } else {
      terms[++kept] = terms[i];
    }
  }
  if (!terms.empty()) terms.resize(kept + 1);
  const int64_t apart = right.begin - left.begin;
  return reaches(terms, apart - left.width + 1, apart + right.width - 1, steps_left);
}

// --- All tensors of a call -----------------------------------------------------------------------

struct Entry {
  Layout set;
  int64_t end;  // the address after its last byte
  const at::Tensor* tensor;
  size_t index;  // among the outputs, or among the inputs
  bool output;
};

void add(std::vector<Entry>& entries, const std::vector<at::Tensor>& tensors, bool output) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (tensor.numel() == 0) continue;
    Layout set{address_of(tensor), static_cast<int64_t>(tensor.nbytes()), {}};
    if (!tensor.is_non_overlapping_and_dense()) set = as_set(layout_of(tensor));
    int64_t end = set.begin + set.width;
    for (const Dim& dim : set.dims) end += (dim.count - 1) * dim.stride;
    entries.push_back({std::move(set), end, &tensor, i, output});
  }
}

bool is_allowed(const Entry& input, const Entry& output, std::span<const InPlace> in_place) {
  for (const InPlace& place : in_place) {
    if (place.input != input.index || place.output != output.index) continue;
    const bool input_is_small = input.tensor->numel() <= output.tensor->numel();
    const Entry& small = input_is_small ? input : output;
    const Entry& whole = input_is_small ? output : input;
    if (is_part(layout_of(*small.tensor), layout_of(*whole.tensor), place.part, place.parts)) {
      return true;
    }
  }
  return false;
}

[[noreturn]] void refuse(const char* call, const Entry& left, const Entry& right, size_t outputs,
                         size_t inputs, bool may_be_in_place) {
  const auto name = [&](const Entry& entry) {
    const bool one = (entry.output ? outputs : inputs) == 1;
    const std::string role = inputs == 0 ? "tensor" : entry.output ? "output" : "input";
    return one ? "the " + role : role + " " + std::to_string(entry.index);
  };
  if (left.output && right.output) {
    const size_t first = std::min(left.index, right.index);
    const std::string role = inputs == 0 ? "tensors " : "outputs ";
    raise_value_error(c10::str(call, " writes to each of its ", role, "and ", role, first, " and ",
                               std::max(left.index, right.index),
                               " share memory: give each its own, for instance by .clone()"));
  }
  const Entry& input = left.output ? right : left;
  const Entry& output = left.output ? left : right;
  raise_value_error(c10::str(call, " reads its input while it writes to its output, and ",
                             name(input), " and ", name(output), " share memory (sizes ",
                             input.tensor->sizes(), " and ", output.tensor->sizes(),
                             may_be_in_place ? "), other than as this rank's own part"
                                             : "), and it does not work in place",
                             ": use .clone() for the input"));
}

}  // namespace

void check_apart(const char* call, const std::vector<at::Tensor>& outputs,
                 const std::vector<at::Tensor>& inputs, std::span<const InPlace> in_place) {
  if (outputs.size() + inputs.size() < 2) return;
  std::vector<Entry> entries;
  entries.reserve(outputs.size() + inputs.size());
  add(entries, outputs, true);
  add(entries, inputs, false);
  std::vector<const Entry*> order;
  order.reserve(entries.size());
  for (const Entry& entry : entries) order.push_back(&entry);
  std::ranges::sort(order, {}, [](const Entry* entry) { return entry->set.begin; });

  int64_t steps_left = kStepsMax;
  std::vector<const Entry*> open;  // entries whose range overlaps the range of the present entry
  for (const Entry* entry : order) {
    std::erase_if(open, [&](const Entry* other) { return other->end <= entry->set.begin; });
    for (const Entry* other : open) {
      if (!entry->output && !other->output) continue;
      if (!share(other->set, entry->set, steps_left)) continue;
      const bool both = entry->output && other->output;
      const Entry& input = entry->output ? *other : *entry;
      const Entry& output = entry->output ? *entry : *other;
      if (!both && is_allowed(input, output, in_place)) continue;
      refuse(call, *entry, *other, outputs.size(), inputs.size(), !in_place.empty());
    }
    open.push_back(entry);
  }
}

bool share_memory(const at::Tensor& one, const at::Tensor& other) {
  const std::vector<at::Tensor> both{one, other};
  std::vector<Entry> entries;
  add(entries, both, true);
  if (entries.size() < 2) return false;
  const Entry &a = entries[0], &b = entries[1];
  int64_t steps_left = kStepsMax;
  return a.set.begin < b.end && b.set.begin < a.end && share(a.set, b.set, steps_left);
}

bool shares_with_itself(const at::Tensor& tensor) {
  const at::MemOverlap known = at::has_internal_overlap(tensor);  // detects strides of 0 only
  if (known != at::MemOverlap::TooHard) return known == at::MemOverlap::Yes;
  const Layout set = as_set(layout_of(tensor));
  int64_t steps_left = kStepsMax;
  // Any two different elements differ by one step or more in some first dimension, and by any
  // number of steps in the dimensions after it.
  for (size_t first = 0; first < set.dims.size(); ++first) {
    Terms terms{{set.dims[first].stride, 1, set.dims[first].count - 1}};
    for (size_t i = first + 1; i < set.dims.size(); ++i) {
      terms.push_back({set.dims[i].stride, 1 - set.dims[i].count, set.dims[i].count - 1});
    }
    if (reaches(terms, 1 - set.width, set.width - 1, steps_left)) return true;
  }
  return false;
}

}  // namespace pccl::torch_layer
