// found: the findings about the run of a Harness, for the tests of the diagnosis.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "master/diagnosis/diagnosis.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {

// Each finding as "error rank_has_not_called", in the order of diagnose().
inline Lines codes(Harness& h) {
  Lines all;
  for (const Finding& one : diagnose(h.core().view()))
    all.push_back(std::string(text(one.severity)) + " " + text(one.code));
  return all;
}

// The only finding with this code; an empty one, and a failure, if there is none.
inline Finding found(Harness& h, FindingCode code) {
  std::vector<Finding> some;
  for (Finding& one : diagnose(h.core().view())) {
    if (one.code == code) some.push_back(std::move(one));
  }
  EXPECT_EQ(some.size(), 1u) << text(code);
  return some.empty() ? Finding{} : some[0];
}

}  // namespace pccl::master
