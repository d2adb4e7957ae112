// SPDX-License-Identifier: Apache-2.0
#include "doctor/bucket_check.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <unistd.h>

#include "core/error.h"
#include "core/host.h"
#include "store/object_store.h"

namespace lockstep {

Finding check_bucket(const std::string& address) {
  const std::string name = "bucket snapshot.path";
  const std::string key = concat("lockstep-doctor-", host_name(), "-", ::getpid());
  const std::string contents = "written by doctor, may be deleted";
  std::string doing = "opening it";
  try {
    const std::unique_ptr<ObjectStore> store = open_store(address);
    doing = "writing an object";
    const std::span<const std::byte> piece = std::as_bytes(std::span(contents));
    store->put(key, Pieces(&piece, 1));
    doing = "reading it back";
    expect(store->get(key) == contents, "it is not what was written");
    doing = "listing";
    const std::vector<std::string> keys = store->list(key);
    expect(std::find(keys.begin(), keys.end(), key) != keys.end(), "it is not in the list");
    doing = "deleting it";
    store->remove(key);
    expect(!store->exists(key), "it is still there");
  } catch (const Error& problem) {
    return {
        name, Verdict::problem, concat(address, ": ", doing, ": ", problem.what()),
        "snapshots need s3:PutObject, s3:GetObject, s3:ListBucket and s3:DeleteObject there; check bucket, "
        "credentials and AWS_ENDPOINT_URL"};
  }
  return {name, Verdict::ok, concat(address, ": written, read, listed and deleted")};
}

}  // namespace lockstep
