// tls_forge: hostile and foreign ends of a TLS connection, for the tests of Tls: a ClientHello
// whose parts can be changed, records that are sealed by hand, and OpenSSL with other settings.
#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "tests/cpp/net/tls_test.h"

namespace pccl::net::forge {

// The identity that all hostile and foreign diallers show, and the key with which they prove it.
struct Shown {
  std::string identity = kAlice;
  Key key = key_of(7);
};
inline Shown shown;

// ---- Bytes --------------------------------------------------------------------------------------

// A number in `width` bytes, the highest first.
inline Bytes number(uint64_t value, size_t width) {
  Bytes bytes(width);
  for (size_t i = 0; i < std::min(width, sizeof value); ++i) {
    bytes[width - 1 - i] = static_cast<std::byte>(value >> (8 * i));
  }
  return bytes;
}
// `content` behind its length, a number of `width` bytes.
inline Bytes with_length(const Bytes& content, size_t width) {
  return number(content.size(), width) + content;
}
inline Bytes record(uint8_t type, const Bytes& content, uint16_t version = 0x0303) {
  return number(type, 1) + number(version, 2) + with_length(content, 2);
}

// ---- The key schedule of TLS 1.3 (RFC 8446, section 7.1) ----------------------------------------

inline const unsigned char* raw(const Bytes& bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
inline Bytes hmac(const Bytes& key, const Bytes& text) {
  Bytes out(32);
  HMAC(EVP_sha256(), raw(key), static_cast<int>(key.size()), raw(text), text.size(),
       reinterpret_cast<unsigned char*>(out.data()), nullptr);
  return out;
}
inline Bytes sha256(const Bytes& text) {
  Bytes out(32);
  EVP_Digest(raw(text), text.size(), reinterpret_cast<unsigned char*>(out.data()), nullptr,
             EVP_sha256(), nullptr);
  return out;
}
inline Bytes expand_label(const Bytes& secret, std::string_view label, const Bytes& context,
                          size_t size) {
  const Bytes info = number(size, 2) + with_length(raw_bytes("tls13 ") + raw_bytes(label), 1) +
                     with_length(context, 1) + number(1, 1);
  Bytes out = hmac(secret, info);
  out.resize(size);
  return out;
}

// ---- A ClientHello in parts ---------------------------------------------------------------------

// The numbers of extensions (RFC 8446, section 4.2).
inline constexpr uint16_t kPreSharedKey = 41, kEarlyData = 42, kVersions = 43, kKeyModes = 45,
                          kKeyShare = 51;

// The parts of a ClientHello that one of our diallers has made. bytes() puts them together again,
// with the proof that belongs to them, as somebody does who knows the key.
struct Hello {
  std::vector<std::pair<uint16_t, Bytes>> extensions;
  Bytes random, session_id, ciphers, compression;
  std::vector<std::string> identities{shown.identity};

  explicit Hello(const Bytes& made) {
    auto rest = std::span(made).subspan(5 + 4 + 2);
    const auto take = [&rest](size_t size) {
      const Bytes taken(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(size));
      rest = rest.subspan(size);
      return taken;
    };
    const auto take_number = [&take](size_t width) {
      size_t value = 0;
      for (const std::byte byte : take(width)) value = value << 8 | std::to_integer<size_t>(byte);
      return value;
    };
    random = take(32);
    session_id = take(take_number(1));
    ciphers = take(take_number(2));
    compression = take(take_number(1));
    const size_t extensions_size = take_number(2);
    EXPECT_EQ(extensions_size, rest.size());
    while (!rest.empty()) {
      const auto type = static_cast<uint16_t>(take_number(2));
      extensions.emplace_back(type, take(take_number(2)));
    }
    EXPECT_EQ(extensions.back().first, kPreSharedKey);
    extensions.pop_back();
  }

  Bytes& extension(uint16_t type) {
    for (auto& [found, content] : extensions) {
      if (found == type) return content;
    }
    ADD_FAILURE() << "no extension " << type;
    return extensions.front().second;
  }
  void remove(uint16_t type) {
    EXPECT_EQ(std::erase_if(extensions, [type](const auto& one) { return one.first == type; }), 1u);
  }

  // The messages, without the header of a record. `key`: the one that proves the first identity;
  // null: there are no identities.
  Bytes message(const Key* key) const {
    Bytes shared, offered;
    for (const auto& [type, content] : extensions) {
      shared = shared + number(type, 2) + with_length(content, 2);
    }
    for (const std::string& identity : identities) {
      offered = offered + with_length(raw_bytes(identity), 2) + number(0, 4);
    }
    const size_t proofs_size = 2 + identities.size() * 33;
    const size_t offer_size = key == nullptr ? 0 : 4 + 2 + offered.size() + proofs_size;
    Bytes body = number(0x0303, 2) + random + with_length(session_id, 1) + with_length(ciphers, 2) +
                 with_length(compression, 1) + number(shared.size() + offer_size, 2) + shared;
    const Bytes start = number(1, 1) + number(body.size() + offer_size, 3) + body;
    if (key == nullptr) return start;
    const Bytes unproven =
        start + number(kPreSharedKey, 2) + number(offer_size - 4, 2) + with_length(offered, 2);
    const Bytes early = hmac(Bytes(32), Bytes(key->bytes.begin(), key->bytes.end()));
    const Bytes binder_key = expand_label(early, "ext binder", sha256({}), 32);
    const Bytes proof = hmac(expand_label(binder_key, "finished", {}, 32), sha256(unproven));
    Bytes proofs;
    for (size_t i = 0; i < identities.size(); ++i) proofs = proofs + with_length(proof, 1);
    return unproven + with_length(proofs, 2);
  }
  Bytes bytes(const Key& key = shown.key) const { return record(22, message(&key), 0x0301); }
  Bytes bytes_without_identity() const { return record(22, message(nullptr), 0x0301); }
};

// ---- Records that are sealed by hand ------------------------------------------------------------

// Seals records of one direction with AES-128-GCM (RFC 8446, section 5.2).
class Sealer {
 public:
  explicit Sealer(const Bytes& traffic_secret)
      : key_(expand_label(traffic_secret, "key", {}, 16)),
        iv_(expand_label(traffic_secret, "iv", {}, 12)) {}

  // A record with this plaintext, which ends with the type of its content, and then zeros.
  Bytes seal(const Bytes& plaintext) {
    Bytes nonce = iv_;
    const Bytes counted = number(next_++, 12);
    for (size_t i = 0; i < nonce.size(); ++i) nonce[i] ^= counted[i];
    const Bytes header = number(23, 1) + number(0x0303, 2) + number(plaintext.size() + 16, 2);
    Bytes out(plaintext.size() + 16);
    auto* const to = reinterpret_cast<unsigned char*>(out.data());
    int size = 0;
    EVP_CIPHER_CTX* const context = EVP_CIPHER_CTX_new();
    EVP_EncryptInit_ex(context, EVP_aes_128_gcm(), nullptr, raw(key_), raw(nonce));
    EVP_EncryptUpdate(context, nullptr, &size, raw(header), static_cast<int>(header.size()));
    EVP_EncryptUpdate(context, to, &size, raw(plaintext), static_cast<int>(plaintext.size()));
    EVP_EncryptFinal_ex(context, to + plaintext.size(), &size);
    EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, to + plaintext.size());
    EVP_CIPHER_CTX_free(context);
    return header + out;
  }
  Bytes seal(uint8_t type, const Bytes& content) { return seal(content + number(type, 1)); }

 private:
  Bytes key_, iv_;
  uint64_t next_ = 0;
};

// ---- OpenSSL with other settings ----------------------------------------------------------------

// An end that is not ours.
class Foreign {
 public:
  using Prepare = std::function<void(SSL_CTX*)>;
  enum class Role { kDialler, kAcceptor };
  explicit Foreign(Role role, const Prepare& prepare = {}) {
    SSL_CTX* const context = SSL_CTX_new(TLS_method());
    SSL_CTX_set_psk_use_session_callback(context, offer_key);
    SSL_CTX_set_psk_find_session_callback(context, find_key);
    SSL_CTX_set_keylog_callback(context, log_key);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
    if (prepare) prepare(context);
    ssl.reset(SSL_new(context));
    SSL_CTX_free(context);
    SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_app_data(ssl.get(), this);
    if (role == Role::kDialler) {
      SSL_set_connect_state(ssl.get());
    } else {
      SSL_set_accept_state(ssl.get());
    }
  }

  // Gives it bytes and lets it go on with the handshake; returns what it has to send.
  Bytes step(const Bytes& bytes = {}) {
    give_only(bytes);
    SSL_do_handshake(ssl.get());
    return take_bytes();
  }
  void give_only(const Bytes& bytes) {
    if (!bytes.empty())
      BIO_write(SSL_get_rbio(ssl.get()), raw(bytes), static_cast<int>(bytes.size()));
  }
  Bytes take_bytes() {
    Bytes out(BIO_ctrl_pending(SSL_get_wbio(ssl.get())));
    if (!out.empty()) BIO_read(SSL_get_wbio(ssl.get()), out.data(), static_cast<int>(out.size()));
    return out;
  }
  Bytes encrypted(std::string_view text) {
    EXPECT_EQ(SSL_write(ssl.get(), text.data(), static_cast<int>(text.size())),
              static_cast<int>(text.size()));
    return take_bytes();
  }
  Bytes key_update(int request) {
    EXPECT_EQ(SSL_key_update(ssl.get(), request), 1);
    return step();
  }
  // A sealer of what it sends as a dialler, with the keys of the data.
  Sealer sealer() const { return Sealer(secrets_.at("CLIENT_TRAFFIC_SECRET_0")); }

  struct Free {
    void operator()(SSL* one) const { SSL_free(one); }
  };
  std::unique_ptr<SSL, Free> ssl;
  uint32_t early_bytes_max = 0;  // of early data that its session allows
  std::optional<Key> key = shown.key;

 private:
  static SSL_SESSION* session(SSL* ssl) {
    const Foreign& self = *static_cast<Foreign*>(SSL_get_app_data(ssl));
    constexpr unsigned char kCipher[] = {0x13, 0x01};
    if (!self.key) return nullptr;
    SSL_SESSION* const made = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(made,
                                reinterpret_cast<const unsigned char*>(self.key->bytes.data()), 32);
    SSL_SESSION_set_cipher(made, SSL_CIPHER_find(ssl, kCipher));
    SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION);
    SSL_SESSION_set_max_early_data(made, self.early_bytes_max);
    return made;
  }
  static int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, size_t* size,
                       SSL_SESSION** made) {
    *identity = reinterpret_cast<const unsigned char*>(shown.identity.data());
    *size = shown.identity.size();
    *made = session(ssl);
    return 1;
  }
  static int find_key(SSL* ssl, const unsigned char*, size_t, SSL_SESSION** made) {
    *made = session(ssl);
    return 1;
  }
  // A line of NSS's key log: a label, the random of the ClientHello, and the secret.
  static void log_key(const SSL* ssl, const char* line) {
    Foreign& self = *static_cast<Foreign*>(SSL_get_app_data(ssl));
    const std::string_view text = line;
    Bytes secret;
    for (size_t at = text.rfind(' ') + 1; at < text.size(); at += 2) {
      secret.push_back(
          static_cast<std::byte>(std::stoi(std::string(text.substr(at, 2)), nullptr, 16)));
    }
    self.secrets_[std::string(text.substr(0, text.find(' ')))] = secret;
  }
  std::map<std::string, Bytes> secrets_;
};

// A foreign dialler and our acceptor, whose handshake is complete.
struct ForeignConnected {
  Foreign dialler{Foreign::Role::kDialler};
  Tls acceptor = an_acceptor();
  ForeignConnected() {
    EXPECT_TRUE(deliver(acceptor, dialler.step()).status.ok());
    EXPECT_TRUE(deliver(acceptor, dialler.step(take_outgoing(acceptor))).status.ok());
    EXPECT_TRUE(acceptor.established());
  }
};

}  // namespace pccl::net::forge
