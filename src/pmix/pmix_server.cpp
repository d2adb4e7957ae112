// SPDX-License-Identifier: Apache-2.0
#include "lockstep/pmix/pmix_server.h"

#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <pmix.h>
#include <pmix_server.h>
#include <unistd.h>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

/// The functions of the server. The library calls plain C functions, which have no other way to find them.
PmixRequests active_requests;

void check(pmix_status_t status, const char* call) {
  expect(status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED, call, ": ", PMIx_Error_string(status));
}

/// Keys and values for the library.
class Infos {
 public:
  Infos() = default;
  ~Infos() {
    for (pmix_info_t& info : all_) PMIX_INFO_DESTRUCT(&info);
  }
  Infos(const Infos&) = delete;
  Infos& operator=(const Infos&) = delete;

  void add_text(const char* key, const std::string& text) { load(key, text.c_str(), PMIX_STRING); }
  void add_regex(const char* key, const char* text) { load(key, text, PMIX_REGEX); }
  void add_flag(const char* key, bool value) { load(key, &value, PMIX_BOOL); }
  void add_uint32(const char* key, size_t number) { load_number<uint32_t>(key, number, PMIX_UINT32); }
  void add_uint16(const char* key, size_t number) { load_number<uint16_t>(key, number, PMIX_UINT16); }
  void add_rank(const char* key, int rank) { load_number<pmix_rank_t>(key, rank, PMIX_PROC_RANK); }
  /// Adds a copy of other infos under one key.
  void add_list(const char* key, const Infos& list) {
    pmix_data_array_t array{};
    array.type = PMIX_INFO;
    array.size = list.all_.size();
    array.array = const_cast<pmix_info_t*>(list.all_.data());
    load(key, &array, PMIX_DATA_ARRAY);
  }

  pmix_info_t* data() { return all_.data(); }
  size_t size() const { return all_.size(); }

 private:
  void load(const char* key, const void* value, pmix_data_type_t type) {
    pmix_info_t& info = all_.emplace_back();
    PMIX_INFO_CONSTRUCT(&info);
    PMIX_INFO_LOAD(&info, key, value, type);
  }
  template <class Value, class Number>
  void load_number(const char* key, Number number, pmix_data_type_t type) {
    const auto value = static_cast<Value>(number);
    load(key, &value, type);
  }

  std::vector<pmix_info_t> all_;
};

/// Makes a call that ends later and waits for its result. `start` gets the library's callback and its
/// context.
template <class Start>
void call_and_wait(const char* call, Start start) {
  std::promise<pmix_status_t> result;
  const auto finish = [](pmix_status_t status, void* context) {
    static_cast<std::promise<pmix_status_t>*>(context)->set_value(status);
  };
  const pmix_status_t started = start(finish, &result);
  check(started == PMIX_SUCCESS ? result.get_future().get() : started, call);
}

pmix_proc_t process_of(const std::string& name_space, int rank) {
  pmix_proc_t process;
  PMIX_LOAD_PROCID(&process, name_space.c_str(), static_cast<pmix_rank_t>(rank));
  return process;
}

std::string bytes_of(const char* data, size_t size) { return data != nullptr ? std::string(data, size) : ""; }

std::string joined_numbers(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += concat(text.empty() ? "" : ",", number);
  return text;
}

PmixAnswer answer_of(pmix_modex_cbfunc_t call, void* context) {
  return [call, context](int status, const std::string& bytes) {
    // The library reads the copy on its own thread and then releases it.
    auto* copy = new std::string(bytes);
    const auto release = [](void* text) { delete static_cast<std::string*>(text); };
    call(status, copy->data(), copy->size(), context, release, copy);
  };
}

// Functions that the library calls on its own thread. Requests that have no function here, such as publish,
// spawn and connect, are refused by the library. Their result is PMIX_OPERATION_SUCCEEDED: PMIX_SUCCESS would
// promise a later answer.

pmix_status_t note_client(const pmix_proc_t* /*process*/, void* /*client*/, pmix_op_cbfunc_t /*answer*/,
                          void* /*context*/) {
  return PMIX_OPERATION_SUCCEEDED;
}

/// A rank in MPI_Abort waits for this answer and then exits with its code, which its keeper reports.
pmix_status_t let_abort(const pmix_proc_t* /*process*/, void* /*client*/, int /*code*/,
                        const char /*message*/[], pmix_proc_t /*processes*/[], size_t /*count*/,
                        pmix_op_cbfunc_t /*answer*/, void* /*context*/) {
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t pass_fence_on(const pmix_proc_t processes[], size_t count, const pmix_info_t /*infos*/[],
                            size_t /*info_count*/, char* data, size_t size, pmix_modex_cbfunc_t answer,
                            void* context) {
  std::vector<int> ranks;
  bool are_all = false;
  for (size_t i = 0; i < count; ++i) {
    are_all |= processes[i].rank == PMIX_RANK_WILDCARD;
    ranks.push_back(static_cast<int>(processes[i].rank));
  }
  std::string bytes = bytes_of(data, size);
  std::free(data);
  active_requests.fence(are_all ? "" : joined_numbers(ranks), std::move(bytes), answer_of(answer, context));
  return PMIX_SUCCESS;
}

pmix_status_t pass_fetch_on(const pmix_proc_t* process, const pmix_info_t /*infos*/[], size_t /*count*/,
                            pmix_modex_cbfunc_t answer, void* context) {
  active_requests.fetch(static_cast<int>(process->rank), answer_of(answer, context));
  return PMIX_SUCCESS;
}

/// Without a handler the library would end this process when a rank's connection breaks. Its keeper reports
/// the end of the rank.
void note_event(size_t /*handler*/, pmix_status_t /*status*/, const pmix_proc_t* /*source*/,
                pmix_info_t /*infos*/[], size_t /*count*/, pmix_info_t* /*results*/, size_t /*result_count*/,
                pmix_event_notification_cbfunc_fn_t answer, void* context) {
  if (answer != nullptr) answer(PMIX_EVENT_ACTION_COMPLETE, nullptr, 0, nullptr, nullptr, context);
}

/// Adds which host runs which ranks, in the library's compressed form.
void add_placement(Infos& infos, const RankMap& map) {
  std::string hosts, ranks;
  for (const RankMap::Node& node : map.nodes) {
    hosts += (hosts.empty() ? "" : ",") + node.host;
    ranks += (ranks.empty() ? "" : ";") + joined_numbers(node.ranks);
  }
  char* regex = nullptr;
  check(PMIx_generate_regex(hosts.c_str(), &regex), "PMIx_generate_regex");
  infos.add_regex(PMIX_NODE_MAP, regex);
  std::free(regex);
  check(PMIx_generate_ppn(ranks.c_str(), &regex), "PMIx_generate_ppn");
  infos.add_regex(PMIX_PROC_MAP, regex);
  std::free(regex);
}

void add_rank(Infos& infos, const RankMap& map, size_t node, size_t local_rank) {
  Infos rank;
  const int number = map.nodes[node].ranks[local_rank];
  for (const char* key : {PMIX_RANK, PMIX_GLOBAL_RANK, PMIX_APP_RANK}) rank.add_rank(key, number);
  rank.add_uint32(PMIX_APPNUM, 0);
  rank.add_uint16(PMIX_LOCAL_RANK, local_rank);
  rank.add_uint16(PMIX_NODE_RANK, local_rank);
  rank.add_uint32(PMIX_NODEID, node);
  rank.add_text(PMIX_HOSTNAME, map.nodes[node].host);
  infos.add_list(PMIX_PROC_DATA, rank);
}

/// Adds what Open MPI 4.1 and 5 read of a job.
void add_job(Infos& infos, const RankMap& map, const std::string& folder) {
  const auto size = static_cast<size_t>(map.size());
  const std::vector<int>& local = map.local_ranks();
  add_placement(infos, map);
  infos.add_text(PMIX_JOBID, map.name_space);
  for (const char* key : {PMIX_UNIV_SIZE, PMIX_JOB_SIZE, PMIX_MAX_PROCS, PMIX_APP_SIZE})
    infos.add_uint32(key, size);
  infos.add_uint32(PMIX_JOB_NUM_APPS, 1);
  infos.add_uint32(PMIX_NUM_NODES, map.nodes.size());
  for (const char* key : {PMIX_LOCAL_SIZE, PMIX_NODE_SIZE}) infos.add_uint32(key, local.size());
  infos.add_uint32(PMIX_NODEID, static_cast<size_t>(map.here));
  infos.add_text(PMIX_LOCAL_PEERS, joined_numbers(local));
  infos.add_rank(PMIX_LOCALLDR, local.front());
  infos.add_flag(PMIX_SPAWNED, false);
  // Open MPI 4 asks the server to delete this folder at the end, so it is not the server's own.
  infos.add_text(PMIX_TMPDIR, folder);
  infos.add_text(PMIX_NSDIR, folder + "/" + map.name_space);
  infos.add_flag(PMIX_TDIR_RMCLEAN, true);
  for (size_t node = 0; node < map.nodes.size(); ++node)
    for (size_t i = 0; i < map.nodes[node].ranks.size(); ++i) add_rank(infos, map, node, i);
}

}  // namespace

PmixServer::PmixServer(const std::string& folder, const std::string& host, PmixRequests requests) {
  active_requests = std::move(requests);
  // Job data is kept in each rank's memory. Ranks were seen to read the store in shared memory too early, and
  // it leaves files behind.
  ::setenv("PMIX_MCA_gds", "hash", 1);
  Infos infos;
  infos.add_text(PMIX_SERVER_TMPDIR, folder);
  infos.add_text(PMIX_SYSTEM_TMPDIR, folder);
  infos.add_text(PMIX_HOSTNAME, host);
  static pmix_server_module_t functions = [] {
    pmix_server_module_t module{};
    module.client_connected = note_client;
    module.client_finalized = note_client;
    module.abort = let_abort;
    module.fence_nb = pass_fence_on;
    module.direct_modex = pass_fetch_on;
    return module;
  }();
  check(PMIx_server_init(&functions, infos.data(), infos.size()), "PMIx_server_init");
  PMIx_Register_event_handler(nullptr, 0, nullptr, 0, note_event, nullptr, nullptr);
}

PmixServer::~PmixServer() { PMIx_server_finalize(); }

void PmixServer::announce(const RankMap& map, const std::string& folder) {
  name_space_ = map.name_space;
  Infos infos;
  add_job(infos, map, folder);
  const auto local_size = static_cast<int>(map.local_ranks().size());
  call_and_wait("PMIx_server_register_nspace", [&](pmix_op_cbfunc_t finish, void* context) {
    return PMIx_server_register_nspace(name_space_.c_str(), local_size, infos.data(), infos.size(), finish,
                                       context);
  });
  for (const int rank : map.local_ranks()) {
    const pmix_proc_t process = process_of(name_space_, rank);
    call_and_wait("PMIx_server_register_client", [&](pmix_op_cbfunc_t finish, void* context) {
      return PMIx_server_register_client(&process, ::geteuid(), ::getegid(), nullptr, finish, context);
    });
  }
}

std::map<std::string, std::string> PmixServer::environment(int rank) const {
  const pmix_proc_t process = process_of(name_space_, rank);
  // The library reallocates this empty list.
  auto** list = static_cast<char**>(std::calloc(1, sizeof(char*)));
  check(PMIx_server_setup_fork(&process, &list), "PMIx_server_setup_fork");
  std::map<std::string, std::string> variables;
  for (char** entry = list; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    variables[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
    std::free(*entry);
  }
  std::free(list);
  return variables;
}

void PmixServer::read(int rank, PmixAnswer answer) const {
  const pmix_proc_t process = process_of(name_space_, rank);
  const auto finish = [](pmix_status_t status, char* data, size_t size, void* context) {
    const std::unique_ptr<PmixAnswer> waiting(static_cast<PmixAnswer*>(context));
    (*waiting)(status, bytes_of(data, size));
  };
  auto waiting = std::make_unique<PmixAnswer>(std::move(answer));
  const pmix_status_t started = PMIx_server_dmodex_request(&process, finish, waiting.get());
  if (started != PMIX_SUCCESS) return (*waiting)(started, "");
  static_cast<void>(waiting.release());  // finish() deletes it
}

}  // namespace lockstep
