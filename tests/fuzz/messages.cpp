// SPDX-License-Identifier: Apache-2.0
// Messages between the processes of lockrun. The sender of a bad one is at fault, so it is an Error.
#include "lockstep/elastic/messages.h"

#include "fuzz/fuzz.h"
#include "lockstep/elastic/root_cause.h"
#include "lockstep/hosting/host_messages.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string text(fuzz::text_of(data, bytes));
  fuzz::accepts<Error>([&] {
    const std::string written = NodeMessage::decode(text).encode();
    fuzz::check(NodeMessage::decode(written).encode() == written, "reads back differently: ", written);
  });
  fuzz::accepts<Error>([&] {
    const std::string written = HostMessage::decode(text).encode();
    fuzz::check(HostMessage::decode(written).encode() == written, "reads back differently: ", written);
  });
  fuzz::accepts<Error>([&] {
    const std::string written = to_json(plan_from_json(text));
    fuzz::check(to_json(plan_from_json(written)) == written, "reads back differently: ", written);
  });
  fuzz::accepts<Error>([&] {
    const RankReport report = report_from_json(text);
    const std::string written = to_json(report);
    fuzz::check(to_json(report_from_json(written)) == written, "reads back differently: ", written);
    const AttemptFailure failure{
        .reports = {report, report}, .other_cause = "another", .launcher_ending = {}};
    describe(failure);
    failure_json(failure, 1);
    exit_code(failure);
  });
  return 0;
}
