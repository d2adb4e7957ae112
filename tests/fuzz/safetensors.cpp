// SPDX-License-Identifier: Apache-2.0
// A safetensors file, and the header alone as readers of snapshots and model folders parse it.
#include "lockstep/tensor/safetensors.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string file(fuzz::text_of(data, bytes));
  fuzz::accepts([&] {
    const std::string written = to_safetensors(from_safetensors(file, "file"));
    fuzz::check(to_safetensors(from_safetensors(written, "again")) == written, "reads back differently");
  });
  fuzz::accepts([&] {
    SafeTensorsHeader header =
        SafeTensorsHeader::parse(file, [](const std::string& name) { return name.ends_with(".bias"); });
    int64_t all = 0;
    for (const SafeTensorsEntry& entry : header.entries) {
      fuzz::check(entry.bytes() >= 0 && entry.end >= entry.bytes(), entry.name, " ends at ", entry.end);
      all += entry.bytes();
    }
    fuzz::check(all <= header.data_bytes, all, " bytes of ", header.data_bytes);
    header.to_bytes();
  });
  return 0;
}
