// The transports that have to pass the tests of this folder.
#include "tests/cpp/transport/transport.h"

namespace pccl::transport {

INSTANTIATE_TEST_SUITE_P(Over, TransportTest,
                         ::testing::Values(Row{"Tcp", make_tcp},
                                           Row{"TcpOnOneMachine", make_tcp_on_one_machine},
                                           Row{"Tls", make_tls},
                                           Row{"TlsOnOneMachine", make_tls_on_one_machine},
                                           Row{"Simulated", make_simulated}),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace pccl::transport
