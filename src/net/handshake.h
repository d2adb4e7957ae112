// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "net/channel.h"
#include "net/secret.h"

namespace lockstep::handshake {

/// The first bytes of a channel. The listener says its greeting; who connects answers with greeting and
/// proof; the listener checks it and answers with its own proof. Each proof covers both nonces and a role, so
/// that none can be played back or mirrored.

constexpr std::string_view protocol = "lockstep-chan-1\n";
constexpr size_t nonce_bytes = 32;
constexpr size_t proof_bytes = 32;
constexpr size_t greeting_bytes = protocol.size() + nonce_bytes;

/// The protocol's name and this nonce.
inline std::string greeting(const std::string& nonce) { return std::string(protocol) + nonce; }

inline std::string nonce_of(std::string_view greeting) {
  return std::string(greeting.substr(protocol.size(), nonce_bytes));
}

/// Both sides' nonces, from which proofs and keys are made.
struct Nonces {
  std::string connector;
  std::string listener;

  std::string code(const Secret& secret, std::string_view purpose) const {
    return authentication_code(secret.bytes(),
                               std::string(protocol) + std::string(purpose) + "\n" + connector + listener);
  }
  std::string connector_proof(const Secret& secret) const { return code(secret, "proof of the connector"); }
  std::string listener_proof(const Secret& secret) const { return code(secret, "proof of the listener"); }
  SessionKeys connector_keys(const Secret& secret) const {
    return {.sending = code(secret, "key to the listener"),
            .receiving = code(secret, "key to the connector")};
  }
  SessionKeys listener_keys(const Secret& secret) const {
    return {.sending = code(secret, "key to the connector"),
            .receiving = code(secret, "key to the listener")};
  }
};

}  // namespace lockstep::handshake
