#include "csrc/ring/op_table.h"

#include <gtest/gtest.h>

namespace pccl::ring {
namespace {

Task task_with(uint32_t sequence, uint32_t world = 3) {
  return {
      .epoch = Epoch{1},
      .op = {TagId{}, sequence},
      .shape = {.rank = 1, .world = world, .element_bytes = 4, .count = 1000, .block_bytes = {}},
      .upstream = PeerId{1},
      .downstream = PeerId{3}};
}

TEST(OpTable, FindsWhatWasPostedUntilItIsRemoved) {
  OpTable table;
  Operation& first = table.add(task_with(1));
  const Operation& second = table.add(task_with(0));
  EXPECT_LT(first.serial, second.serial);
  EXPECT_EQ(table.find({TagId{}, 1}), &first);
  EXPECT_EQ(table.find({TagId{}, 2}), nullptr);
  table.remove({TagId{}, 0});
  EXPECT_EQ(table.find({TagId{}, 0}), nullptr);
  EXPECT_EQ(table.size(), 1u);
}

TEST(OpTable, CountsPulledTransfers) {
  OpTable table;
  Task pulled = task_with(0);
  pulled.pulled = true;
  table.add(pulled);
  table.add(task_with(1));
  EXPECT_EQ(table.pulled(), 1u);
  table.check();
  table.remove({TagId{}, 1});
  EXPECT_EQ(table.pulled(), 1u);
  table.remove({TagId{}, 0});
  EXPECT_EQ(table.pulled(), 0u);
  table.check();
}

TEST(OpTable, AnOperationSendsAgainstCreditAndData) {
  OpTable table;
  Operation& operation = table.add(task_with(0));
  EXPECT_FALSE(operation.can_send()) << "no credit";
  operation.allowed = 1;
  EXPECT_TRUE(operation.can_send());
  EXPECT_EQ(operation.progress.take(), 0u);
  operation.allowed = 4;
  EXPECT_FALSE(operation.can_send()) << "what it would send on has not come";
  operation.progress.arriving(0);
  operation.progress.arrived(0);
  EXPECT_TRUE(operation.can_send());
  operation.downstream_lost = true;
  EXPECT_FALSE(operation.can_send());
}

TEST(OpTable, CreditIsOwedUntilItIsGranted) {
  OpTable table;
  Operation& operation = table.add(task_with(0));
  EXPECT_TRUE(operation.owes_credit());
  operation.granted = operation.credit();
  EXPECT_FALSE(operation.owes_credit());
  Operation& lost = table.add(task_with(1));
  lost.upstream_lost = true;
  EXPECT_FALSE(lost.owes_credit());
  const Operation& alone = table.add(task_with(2, 2));
  EXPECT_TRUE(alone.owes_credit());
  EXPECT_FALSE(alone.progress.finished());
}

}  // namespace
}  // namespace pccl::ring
