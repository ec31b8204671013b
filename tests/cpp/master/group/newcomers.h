// NewcomerTest: a newcomer, c, was just admitted to a group of two members that were compared with
// each other.
#pragma once

#include <string>

#include "tests/cpp/master/harness.h"

namespace pccl::master {

struct NewcomerTest : testing::Test, Harness {
  void SetUp() override {
    found({"a", "b"});
    begin("a", epoch(1), 0, 7);
    begin("b", epoch(1), 0, 7);
    say("a", protocol::Done{epoch(1), op(0), 0});
    say("b", protocol::Done{epoch(1), op(0), 0});
    admit("c");
  }
  void admit(const std::string& name) {
    enlist(name, hello(2));
    link_all();
    vote("a", epoch(1), 0);
    vote("b", epoch(1), 0);
    ASSERT_TRUE(last<protocol::EpochStart>(name) != nullptr);
    take();
  }
  void admit_d() {
    enlist("d", hello(2));
    link_all();
    for (const char* name : {"a", "b", "c"}) vote(name, epoch(2), 0);
    ASSERT_TRUE(last<protocol::EpochStart>("d") != nullptr);
    take();
  }
  void begin(const std::string& name, Epoch in, uint32_t sequence, uint64_t count) {
    say(name, protocol::Begin{in, op(sequence), all_reduce(count)});
  }
  // c lacks the state.
  void all_sync() {
    vote("a", epoch(2), 0, kSync, offer(3, {1}));
    vote("b", epoch(2), 0, kSync, offer(3, {1}));
    vote("c", epoch(2), 0, kSync, offer(0, {2}));
  }
  void fetch_slowly() {
    for (int i = 0; i < 3; ++i) {
      tick_with({"a", "b", "c"}, 15);
      say("c", protocol::Fetching{0});
    }
  }
  // c is lost. a has given up the call, and says so again.
  void members_sync_again() {
    for (const char* name : {"a", "b"}) say(name, protocol::StateReport{epoch(2), {}});
    vote("a", epoch(3), 0, kSync, offer(3, {1}));
    if (contains(kicked("c"), "the timeout of the others"))
      say("a", protocol::JointAbort{0, epoch(3)});
    vote("b", epoch(3), 0, kSync, offer(3, {1}));
    for (const char* name : {"a", "b"}) {
      const auto* answer = last<protocol::Answer>(name);
      ASSERT_TRUE(answer != nullptr && answer->kind == kSync) << name;
      EXPECT_EQ(answer->code, Code::kOk) << answer->text;
      EXPECT_EQ(answer->revision, 3u);
    }
  }
  std::string kicked(const std::string& name) const {
    const auto* kicked = last<protocol::Kicked>(name);
    return kicked == nullptr ? "" : kicked->text;
  }
};

}  // namespace pccl::master
