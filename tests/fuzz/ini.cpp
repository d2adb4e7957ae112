// SPDX-License-Identifier: Apache-2.0
// Configurations. A value that was read is written so that it reads back the same.
#include "fuzz/fuzz.h"
#include "lockstep/config/settings.h"
#include "lockstep/job/load_job.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string text(fuzz::text_of(data, bytes));
  fuzz::accepts([&] {
    const std::string written = to_ini(with_settings({}, parse_ini(text, "x.ini")));
    const std::string again = to_ini(with_settings({}, parse_ini(written, "again.ini")));
    fuzz::check(again == written, "read again:\n", again, "\ninstead of:\n", written);
  });
  fuzz::accepts([&] { to_ini(settings_of_earlier_run(job_keys(), text, "x.ini")); });
  return 0;
}
