// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "store/object_store.h"

namespace lockstep {

/// Opens the objects below an http(s) address: "a/b.txt" is <address>/a/b.txt. A server that does not support
/// ranges sends the whole object, which is then kept in memory.
std::unique_ptr<ObjectReader> open_http_folder(const std::string& address);

}  // namespace lockstep
