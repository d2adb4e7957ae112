// SPDX-License-Identifier: Apache-2.0
// The file .owner of a run's folder. An owner that cannot be read is an unknown one.
#include "lockstep/store/owner.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const fuzz::TemporaryFolder folder;
  folder.set(".owner", fuzz::text_of(data, bytes));
  fuzz::accepts([&] {
    const Owner self{.run = "run", .generation = 2, .host = "host", .boot_id = "boot"};
    const FolderOwner owner("log.dir", folder.path(), self, 0.0);
    owner.check();
  });
  return 0;
}
