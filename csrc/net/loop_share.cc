#include "csrc/net/loop_share.h"

#include <future>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/net/loop_impl.h"

namespace pccl::net {

LoopShare::LoopShare(std::shared_ptr<Loop> loop) : impl_(loop->impl()), loop_(std::move(loop)) {}

LoopShare::~LoopShare() { end({}); }

const Status& LoopShare::status() const { return impl_->status(); }
bool LoopShare::on_loop() const { return impl_->on_loop(); }
void LoopShare::assert_on_loop(const char* file, int line) const {
  impl_->assert_on_loop(file, line);
}

Loop& LoopShare::loop() {
  PCCL_ASSERT(loop_ != nullptr);
  return *loop_;
}

void LoopShare::post(std::function<void()> task) {
  impl_->post([ended = ended_, task = std::move(task)] {
    if (!*ended) task();
  });
}

void LoopShare::end(std::function<void()> last) {
  if (loop_ == nullptr) return;
  if (impl_->orphaned()) {
    new std::shared_ptr<Loop>(std::move(loop_));  // a forked child leaks the inherited loop
    return;
  }
  PCCL_ASSERT(!on_loop());
  if (status().ok()) {
    std::promise<void> done;
    impl_->post([this, &last, &done] {
      if (last) last();
      *ended_ = true;
      done.set_value();
    });
    done.get_future().wait();
  }
  loop_.reset();
}

}  // namespace pccl::net
