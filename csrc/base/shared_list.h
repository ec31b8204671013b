// SharedList: a list as a value that is cheap to copy. Copies share one list, which never changes.
// A shared state has up to 65,536 entries, and several messages and members hold the same entries.
// Any thread may use it.
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace pccl {

template <typename T>
class SharedList {
 public:
  using List = std::vector<T>;

  SharedList() = default;
  SharedList(List entries) : list_(std::make_shared<const List>(std::move(entries))) {}
  SharedList(std::initializer_list<T> entries) : SharedList(List(entries)) {}
  // REQUIRES: `list` is not null, and nothing changes it any more.
  explicit SharedList(std::shared_ptr<const List> list) : list_(std::move(list)) {}

  const List& all() const {
    static const List kNone;
    return list_ != nullptr ? *list_ : kNone;
  }
  operator const List&() const { return all(); }
  size_t size() const { return all().size(); }
  bool empty() const { return all().empty(); }
  auto begin() const { return all().begin(); }
  auto end() const { return all().end(); }
  const T& operator[](size_t at) const { return all()[at]; }

  friend bool operator==(const SharedList& a, const SharedList& b) {
    return a.list_ == b.list_ || a.all() == b.all();
  }

 private:
  std::shared_ptr<const List> list_;
};

}  // namespace pccl
