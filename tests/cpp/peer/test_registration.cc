#include "csrc/peer/registration.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

const protocol::Welcome kWelcome{peer_id(2), 77, 1, "10.0.0.2", false};
const MasterConnected kElsewhere{.elsewhere = true};
const Listening kListening{uint16_t{4000}};
const MasterClosed kReset{{Code::kSystem, "reset", {}}};

TEST(Registration, FollowsTheHelloToAMasterOnAnotherMachine) {
  Transcript t;
  t.on(JoinCalled{1});
  EXPECT_EQ(t.on(kElsewhere), "tell Hello\nlisten\n");
  EXPECT_EQ(t.on(kListening), "tell Register\n");
  EXPECT_EQ(t.hear(kWelcome), "accept as 1.2\n");
  EXPECT_EQ(t.hear(protocol::Dial{peer_id(3), "10.0.0.3", 4001}), "dial 1.3 at 10.0.0.3:4001\n");
}

TEST(Registration, WaitsForTheWelcomeOfAMasterOnThisMachine) {
  Transcript t;
  t.on(JoinCalled{1});
  EXPECT_EQ(t.on(MasterConnected{}), "tell Hello\n");
  protocol::Welcome welcome = kWelcome;
  welcome.loopback_only = true;
  EXPECT_EQ(t.hear(welcome), "accept as 1.2\nlisten on loopback\n");
  EXPECT_EQ(t.on(kListening), "tell Register\n");
}

TEST(Registration, FollowsTheWelcomeIfTheListenerTakesLonger) {
  Transcript t;
  t.on(JoinCalled{1});
  t.on(kElsewhere);
  EXPECT_EQ(t.hear(kWelcome), "accept as 1.2\n");
  EXPECT_EQ(t.on(kListening), "tell Register\n");
}

TEST(Registration, ANewConnectionBeforeTheWelcomeHasTheSameListener) {
  Transcript t;
  t.on(JoinCalled{1});
  t.on(kElsewhere);
  t.on(kReset);
  EXPECT_EQ(t.on(kListening), "") << "there is nobody to tell";
  EXPECT_EQ(t.wait(0.1), "connect\n");
  EXPECT_EQ(t.on(kElsewhere), "tell Hello\ntell Register\n");
  t.on(kReset);
  EXPECT_EQ(t.wait(0.2), "connect\n");
  EXPECT_EQ(t.on(kElsewhere), "tell Hello\ntell Register\n");
  EXPECT_EQ(t.hear(kWelcome), "accept as 1.2\n");
}

TEST(Registration, WithoutAPortTheJoinFails) {
  Transcript t;
  t.on(JoinCalled{1});
  t.on(kElsewhere);
  const std::string text = t.on(Listening{Status{Code::kSystem, "no port is free", {}}});
  EXPECT_NE(text.find("no port is free"), std::string::npos) << text;
}

TEST(Registration, NamesTheAddressesThatOthersCanReach) {
  Effects effects;
  Context context;
  context.options.advertised = {"example.org", 9000, 4000};
  context.effects = &effects;
  context.linked = true;
  Registration registration(context);
  registration.open_listener(false);
  registration.open_listener(true);
  ASSERT_EQ(effects.size(), 1u);
  registration.opened(4003, {"127.0.0.1", "10.0.0.4", "fe80::1", "2001:db8::1", "example.org"});
  registration.tell();
  const auto& message = std::get<SendMaster>(effects.at(1)).message;
  const auto& told = std::get<protocol::Register>(message);
  EXPECT_EQ(told.host, "example.org");
  EXPECT_EQ(told.port, 9003) << "the fourth of the range";
  EXPECT_EQ(told.others, (std::vector<Endpoint>{{"10.0.0.4", 4003}, {"2001:db8::1", 4003}}));
}

}  // namespace
}  // namespace pccl::peer
