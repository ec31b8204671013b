#include "master/diagnosis/diagnosis.h"

#include "tests/cpp/master/diagnosis/found.h"

namespace pccl::master {
namespace {

const Lines kAllIsWell = {"note nothing_wrong"};

TEST(Diagnosis, NothingIsWrongWithARunThatHasNotBegun) {
  Harness h;
  EXPECT_EQ(codes(h), kAllIsWell);
  h.enlist("a", Harness::hello(2));
  h.tick_with({"a"}, 4);
  EXPECT_EQ(codes(h), kAllIsWell);
  EXPECT_TRUE(contains(found(h, FindingCode::kNothingWrong).text, "1 peer about to be admitted"));
}

TEST(Diagnosis, NothingIsWrongWithARunThatTrains) {
  Harness h;
  h.found({"a", "b"});
  EXPECT_EQ(codes(h), kAllIsWell);
  for (uint32_t i = 0; i < 3; ++i) {
    for (const char* name : {"a", "b"})
      h.say(name, protocol::Begin{epoch(1), op(i), all_reduce(1000)});
    EXPECT_EQ(codes(h), kAllIsWell) << "while it is under way";
    for (const char* name : {"a", "b"}) h.say(name, protocol::Done{epoch(1), op(i), i});
  }
  const std::string text = found(h, FindingCode::kNothingWrong).text;
  EXPECT_EQ(text,
            "nothing stands still: the run has 2 members, which have committed 3 operations/s with "
            "12 kB/s in the last 1 s");
  h.tick_with({"a", "b"}, 60);
  EXPECT_EQ(codes(h), kAllIsWell) << "both compute";
}

TEST(Diagnosis, NothingIsWrongDuringAShortWait) {
  Harness h;
  h.found({"a", "b"});
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(1)});
  h.tick_with({"a", "b"}, 19);
  EXPECT_EQ(codes(h), kAllIsWell);
  h.tick_with({"a", "b"}, 3);
  EXPECT_EQ(codes(h), (Lines{"error rank_has_not_called"}));
}

TEST(Diagnosis, NothingIsWrongDuringAJoin) {
  Harness h;
  h.found({"a", "b"}, 0, 1);
  h.enlist("c", Harness::hello(1));
  h.tick_with({"a", "b", "c"}, 3);
  EXPECT_EQ(codes(h), kAllIsWell);
  h.link_all();
  h.vote("a", epoch(1), 0);
  EXPECT_EQ(codes(h), kAllIsWell);
  h.hold_persists = true;
  h.vote("b", epoch(1), 0);
  EXPECT_EQ(codes(h), kAllIsWell) << "the membership is being made durable";
  h.release();
  EXPECT_EQ(codes(h), kAllIsWell);
}

TEST(Diagnosis, ErrorsComeBeforeWarningsAndNameTheirGroup) {
  Harness h;
  h.found({"a", "b"}, 0, 1);
  h.found({"d", "e"}, 1, 1);
  protocol::Hello wrong = Harness::hello(2);
  wrong.name = "other";
  h.greet("x", wrong);
  h.say("d", protocol::Begin{epoch(2), op(0), all_reduce(1)});
  h.tick_with({"a", "b", "d", "e"}, 22);
  EXPECT_EQ(codes(h), (Lines{"error rank_has_not_called", "warning version_or_terms_refused"}));
  const std::string text = found(h, FindingCode::kRankHasNotCalled).text;
  EXPECT_TRUE(text.starts_with("peer group 1: rank 0 waits: ")) << text;
}

}  // namespace
}  // namespace pccl::master
