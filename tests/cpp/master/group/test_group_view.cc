#include "master/group/group_view.h"

#include "master/group/group.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

class GroupViewTest : public testing::Test {
 protected:
  GroupViewTest() {
    context.effects = &effects;
    context.options.incarnation = 1;
  }
  PeerId welcome() {
    const PeerId id = context.new_peer();
    connections.accept({id.value}, "10.0.0.1", false);
    group.welcome(id, {}, {1, 1});
    connections.admit({id.value}, id, group.id(), ConnectionPhase::kWelcomed);
    return id;
  }

  Effects effects;
  Context context;
  Connections connections{context};
  Group group{{0}, context, connections};
  const GroupView& view = group.view();
};

TEST_F(GroupViewTest, AnEmptyGroupCanBeForgotten) {
  EXPECT_TRUE(view.is_deserted() && view.is_forgettable() && view.is_settled());
  EXPECT_FALSE(view.has_members() || view.is_busy() || view.can_call());
}

TEST_F(GroupViewTest, APeerThatWaitsToBeAdmittedKeepsItBusy) {
  const PeerId peer = welcome();
  EXPECT_TRUE(view.is_busy() && view.is_new());
  EXPECT_FALSE(view.is_deserted() || view.has_members());
  EXPECT_FALSE(view.is_in_joint_call(peer) || view.is_in_call(peer)) << "it is no voter";
}

TEST_F(GroupViewTest, AnAgreedStateIsRemembered) {
  group.restore(SharedStateRecord{{0}, 3, {}});
  EXPECT_TRUE(view.is_deserted());
  EXPECT_FALSE(view.is_forgettable());
}

}  // namespace
}  // namespace pccl::master
