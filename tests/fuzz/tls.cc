// Fuzzes Tls in four ways: two ends between which flights and records are changed, cut, repeated or
// reflected; any bytes; a ClientHello that has any extensions and the right proof; sealed records
// of any content. An end must read only what the other end has written, in order.
#include <algorithm>
#include <array>

#include "tests/cpp/net/tls_forge.h"
#include "tests/fuzz/fuzz.h"

namespace pccl::fuzz {
namespace {

using net::Bytes;
using net::Tls;
using net::operator+;

Bytes some_bytes(Chance& chance, size_t size_max) {
  Bytes bytes(chance.below(size_max + 1));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(chance());
  return bytes;
}

// One end, and what is on the way to it.
struct End {
  explicit End(Tls made) : tls(std::move(made)) {}
  Tls tls;
  Bytes coming, seen;  // ciphertext that will arrive; all that was ever on the way
  Bytes written, received;
  bool closed = false;
  Status failure;
};

class Wire {
 public:
  explicit Wire(Chance& chance)
      : chance_(chance), ends_{End(net::a_dialler()), End(net::an_acceptor())} {}

  void run() {
    while (!chance_.over()) anything();
    for (size_t i = 0; i < 4; ++i) {
      for (End& end : ends_) {
        send(end);
        arrive(end, end.coming.size());
      }
    }
    for (End& end : ends_) check_end(end);
  }

 private:
  End& other(const End& end) { return &end == &ends_[0] ? ends_[1] : ends_[0]; }

  void send(End& end) {
    const auto bytes = end.tls.outgoing();
    End& to = other(end);
    to.coming.insert(to.coming.end(), bytes.begin(), bytes.end());
    to.seen.insert(to.seen.end(), bytes.begin(), bytes.end());
    end.tls.sent(bytes.size());
  }

  void arrive(End& end, size_t bytes) {
    std::span<std::byte> piece = std::span(end.coming).first(bytes);
    for (;;) {
      Result<std::span<const std::byte>> read = end.tls.read(piece);
      require(end.failure.ok() || !read.ok(), "a failure stays");
      if (!read.ok()) {
        require(end.failure.ok() || end.failure == read.status(), "and stays the same");
        end.failure = read.status();
        break;
      }
      if (read.value().empty()) {
        require(piece.empty(), "nothing is left over");
        break;
      }
      end.received.insert(end.received.end(), read.value().begin(), read.value().end());
    }
    end.coming.erase(end.coming.begin(), end.coming.begin() + static_cast<ptrdiff_t>(bytes));
    check(end);
  }

  void check(End& end) {
    const Bytes& source = other(end).written;
    require(end.received.size() <= source.size(), "no more is read than was written");
    require(std::equal(end.received.begin(), end.received.end(), source.begin()), "and the same");
    require(end.received.empty() || end.tls.established(), "nothing is read before the proof");
    require(end.tls.outgoing().size() <= 2 * Tls::kOutgoingBytesMax, "the queue is bounded");
  }

  void check_end(End& end) {
    if (!end.tls.ended().ok()) return;
    require(other(end).closed, "only a close is an end");
    require(end.received == other(end).written, "an end comes after everything");
  }

  void write(End& end) {
    const Bytes bytes = some_bytes(chance_, 40);
    const Bytes more(chance_.below(4) * 9000, std::byte{7});
    const std::span<const std::byte> spans[] = {bytes, more};
    Result<size_t> taken = end.tls.write(spans);
    if (!taken.ok()) return;
    const Bytes all = bytes + more;
    require(taken.value() <= all.size(), "no more is taken than was given");
    end.written.insert(end.written.end(), all.begin(),
                       all.begin() + static_cast<ptrdiff_t>(taken.value()));
  }

  void anything() {
    End& end = ends_[chance_.below(2)];
    Bytes& way = end.coming;
    const size_t at = chance_.below(way.size() + 1);
    const auto place = way.begin() + static_cast<ptrdiff_t>(at);
    switch (chance_.below(12)) {
      case 0:
        if (place != way.end()) *place ^= static_cast<std::byte>(1 + chance_.below(255));
        break;
      case 1:
        way.erase(place,
                  way.begin() + static_cast<ptrdiff_t>(at + chance_.below(way.size() - at + 1)));
        break;
      case 2: {
        const Bytes more = some_bytes(chance_, 30);
        way.insert(place, more.begin(), more.end());
        break;
      }
      case 3: way = way + end.seen; break;
      case 4: way = way + other(end).seen; break;
      case 5:
        end.tls.close();
        end.closed = true;
        break;
      case 6: end.tls.rekey_after(1 + chance_.below(5)); break;
      case 7: write(end); break;
      case 8: arrive(end, at); break;
      case 9: arrive(end, way.size()); break;
      default: send(end); break;
    }
    if (way.size() > 200000) way.clear();
  }

  Chance& chance_;
  End ends_[2];
};

void any_bytes(std::span<const std::byte> bytes) {
  for (Tls& end : std::array{net::a_dialler(), net::an_acceptor()}) {
    const net::Outcome outcome = net::deliver(end, bytes, 100);
    require(!end.proven() && !end.established(), "nobody proves a key by chance");
    require(outcome.plaintext.empty() && !end.ended().ok(), "nothing is read");
  }
}

// A dialler with the right key sends any ClientHello: it gets at most the acceptor's first flight.
void proven_hello(Chance& chance) {
  net::Tls dialler = net::a_dialler();
  net::forge::Hello hello(net::take_outgoing(dialler));
  while (!chance.over()) {
    auto& extensions = hello.extensions;
    const size_t which = chance.below(extensions.size() + 1);
    const auto place = extensions.begin() + static_cast<ptrdiff_t>(which);
    switch (chance.below(6)) {
      case 0:
        extensions.insert(place, {static_cast<uint16_t>(chance.below(60)), some_bytes(chance, 40)});
        break;
      case 1:
        if (place != extensions.end()) place->second = some_bytes(chance, 40);
        break;
      case 2:
        if (place != extensions.end()) extensions.erase(place);
        break;
      case 3:
        if (place != extensions.end() && !place->second.empty()) {
          place->second[chance.below(place->second.size())] = static_cast<std::byte>(chance());
        }
        break;
      case 4: hello.ciphers = some_bytes(chance, 10); break;
      default: hello.session_id = some_bytes(chance, 40); break;
    }
  }
  Tls acceptor = net::an_acceptor();
  const net::Outcome outcome = net::deliver(acceptor, hello.bytes(), 100);
  require(outcome.plaintext.empty() && !acceptor.established(), "nothing is read before Finished");
}

void sealed_records(Chance& chance) {
  net::forge::ForeignConnected ends;
  net::forge::Sealer sealer = ends.dialler.sealer();
  Bytes written, received;
  Status status;
  while (!chance.over() && status.ok()) {
    const Bytes content = some_bytes(chance, 50);
    const auto type = static_cast<uint8_t>(20 + chance.below(5));
    if (type == 23) written = written + content;
    const net::Outcome outcome = net::deliver(ends.acceptor, sealer.seal(type, content));
    received = received + outcome.plaintext;
    status = outcome.status;
    if (type != 23 && status.ok()) break;  // a key update: the next record needs another key
  }
  require(status.ok() ? received == written : received.size() <= written.size(),
          "only data are read");
}

}  // namespace
}  // namespace pccl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pccl;
  if (size == 0) return 0;
  Chance chance(std::span(data, size).subspan(1));
  switch (data[0] % 4) {
    case 0: fuzz::any_bytes(fuzz::as_bytes(data + 1, size - 1)); break;
    case 1: fuzz::proven_hello(chance); break;
    case 2: fuzz::sealed_records(chance); break;
    default: fuzz::Wire(chance).run(); break;
  }
  return 0;
}
