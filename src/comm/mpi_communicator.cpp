// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/mpi_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sched.h>
#include <unistd.h>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/comm/shared_memory.h"
#include "lockstep/core/clock.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"

#if defined(LOCKSTEP_MPI)
#include <mpi.h>

namespace lockstep {
namespace {

// MPI counts are ints, and Open MPI allocates memory for large single messages.
constexpr int64_t piece_bytes = int64_t{64} << 20;

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(concat(call, ": ", text));
}

/// Returns how many of these messages, from the first on, travel as one: small ones to the same peer. Both
/// sides have the same messages in the same order, so they join the same ones. MPI copies the parts of a
/// joined message, which costs less than a message up to about 16 KiB.
template <class Byte>
size_t count_joined(std::span<const Message<Byte>> messages) {
  constexpr int64_t most_bytes = int64_t{16} << 10;
  constexpr size_t most_joined = 1024;
  const auto end = std::ranges::find_if(
      messages.first(std::min(messages.size(), most_joined)),
      [&](const auto& message) { return message.peer != messages[0].peer || message.bytes > most_bytes; });
  return std::max<size_t>(1, static_cast<size_t>(end - messages.begin()));
}

/// Returns the type of several blocks of memory, at their addresses.
template <class Byte>
MPI_Datatype type_of(std::span<const Message<Byte>> messages) {
  std::vector<int> lengths;
  std::vector<MPI_Aint> addresses(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    lengths.push_back(static_cast<int>(messages[i].bytes));
    MPI_Get_address(messages[i].data, &addresses[i]);
  }
  MPI_Datatype type;
  check(MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), addresses.data(), MPI_BYTE,
                                 &type),
        "MPI_Type_create_hindexed");
  check(MPI_Type_commit(&type), "MPI_Type_commit");
  return type;
}

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(MPI_Comm communicator, MpiRank place)
      : Communicator(place.rank, place.size),
        communicator_(communicator),
        one_host_(place.local_size == place.size) {}

  std::shared_ptr<SharedMemory> share(int64_t bytes, bool is_common = false) override;

 protected:
  void do_barrier() override {
    MPI_Request request;
    check(MPI_Ibarrier(communicator_, &request), "MPI_Ibarrier");
    wait({&request, 1});
  }

  void do_broadcast(std::byte* data, int64_t bytes, int root) override {
    for (int64_t begin = 0; begin < bytes; begin += piece_bytes) {
      const int count = static_cast<int>(std::min(piece_bytes, bytes - begin));
      MPI_Request request;
      check(MPI_Ibcast(data + begin, count, MPI_BYTE, root, communicator_, &request), "MPI_Ibcast");
      wait({&request, 1});
    }
  }

  void do_all_gather(const std::byte* mine, int64_t bytes, std::byte* all) override {
    expect(bytes <= piece_bytes, "all_gather of ", bytes, " bytes a rank");
    const int count = static_cast<int>(bytes);
    MPI_Request request;
    check(MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, communicator_, &request),
          "MPI_Iallgather");
    wait({&request, 1});
  }

  void do_exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives) override {
    std::vector<MPI_Request> requests;
    const auto post_all = [&]<class Byte>(std::span<const Message<Byte>> messages, auto call,
                                          const char* name) {
      std::vector<Message<Byte>> by_peer(messages.begin(), messages.end());
      std::ranges::stable_sort(by_peer, {}, &Message<Byte>::peer);
      std::span<const Message<Byte>> rest = by_peer;
      const auto post = [&](auto* data, int64_t count, MPI_Datatype type) {
        check(call(data, static_cast<int>(count), type, rest[0].peer, 0, communicator_,
                   &requests.emplace_back()),
              name);
      };
      for (size_t joined = 1; !rest.empty(); rest = rest.subspan(joined)) {
        joined = count_joined(rest);
        if (joined > 1) {
          MPI_Datatype type = type_of(rest.first(joined));
          post(MPI_BOTTOM, 1, type);
          MPI_Type_free(&type);
        } else {
          for (int64_t begin = 0; begin < rest[0].bytes; begin += piece_bytes)
            post(rest[0].data + begin, std::min(piece_bytes, rest[0].bytes - begin), MPI_BYTE);
        }
      }
    };
    post_all(receives, MPI_Irecv, "MPI_Irecv");
    post_all(sends, MPI_Isend, "MPI_Isend");
    wait(requests);
  }

  void do_native_all_reduce(float* values, int64_t count) override {
    constexpr int64_t piece = piece_bytes / 4;
    for (int64_t begin = 0; begin < count; begin += piece) {
      const int length = static_cast<int>(std::min(piece, count - begin));
      MPI_Request request;
      check(MPI_Iallreduce(MPI_IN_PLACE, values + begin, length, MPI_FLOAT, MPI_SUM, communicator_, &request),
            "MPI_Iallreduce");
      wait({&request, 1});
    }
  }

 private:
  /// Polls, because MPI makes progress only inside its calls. Between polls a rank that shares its core
  /// yields to the others.
  void wait(std::span<MPI_Request> requests) {
    const auto begin = Clock::now();
    for (int64_t tries = 0;; ++tries) {
      int done = 0;
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
            "MPI_Testall");
      if (done) return;
      if (tries < 1000) continue;
      ::sched_yield();
      if (tries % 256 != 0) continue;
      expect(!cancelled().load(), "this rank is going down");
      expect(seconds_since(begin) < timeout(), "waited ", timeout(), " s for the other ranks (",
             option_name("timeout_s"), ")");
    }
  }

  MPI_Comm communicator_;
  bool one_host_;
  int blocks_shared_ = 0;
};

std::shared_ptr<SharedMemory> MpiCommunicator::share(int64_t bytes, bool is_common) {
  if (!one_host_) return nullptr;
  const auto name_of = [&](const std::string& base, int rank) {
    return concat("/lockstep-", base, "-", blocks_shared_, "-", rank);
  };
  // Rank 0's process id and the time distinguish this job's blocks from those of other jobs, even in other
  // containers.
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string base = broadcast_text(concat(::getpid(), "-", now), 0);
  std::string problem;
  auto memory = std::make_shared<SharedMemory>();
  memory->bytes = bytes;
  memory->is_mapped = true;
  memory->owners.resize(static_cast<size_t>(size()));
  // The name is removed on every exit from this function, so that no later failure leaves it behind.
  const std::shared_ptr<void> name(nullptr,
                                   [own = name_of(base, rank())](std::nullptr_t) { unlink_shared(own); });
  const auto makes_block = [&](int peer) { return peer == 0 || !is_common; };
  if (makes_block(rank()))
    memory->owners[static_cast<size_t>(rank())] = map_shared(name_of(base, rank()), bytes, true, problem);
  const auto all_succeeded = [&] {
    std::string first;
    for (const std::string& text : all_gather_text(problem))
      if (first.empty()) first = text;
    if (!first.empty() && rank() == 0)
      log_warning("shared memory is not available, so ranks exchange messages: " + first);
    return first.empty();
  };
  if (!all_succeeded()) return nullptr;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() && makes_block(peer))
      memory->owners[static_cast<size_t>(peer)] = map_shared(name_of(base, peer), bytes, false, problem);
  const bool mapped = all_succeeded();
  ++blocks_shared_;
  for (int peer = 0; peer < size(); ++peer)
    memory->of_rank.push_back(memory->owners[makes_block(peer) ? static_cast<size_t>(peer) : 0].get());
  return mapped ? memory : nullptr;
}

bool initialized() {
  int yes = 0;
  MPI_Initialized(&yes);
  return yes != 0;
}

/// Makes MPI ask for addresses on demand under srun. Otherwise Open MPI 4 exchanges them in a fence of
/// Slurm's, which was seen to release one rank while another was still in it. The first message then found no
/// handler, and its receiver crashed (about one start in 100). On demand, PMIx 4 keeps addresses in shared
/// memory. There a rank was seen to look too early and fail ("Not found", one start of 6 with eight ranks).
/// PMIx's other store, in the memory of each rank, has no such gap.
void exchange_addresses_on_demand() {
  const bool by_srun = environment_if_set("SLURM_PROCID") && environment_if_set("PMIX_RANK");
  if (!by_srun || environment_if_set("OMPI_COMM_WORLD_RANK")) return;
  ::setenv("OMPI_MCA_pmix_base_async_modex", "1", 0);
  ::setenv("OMPI_MCA_pmix_base_collect_data", "0", 0);
  ::setenv("PMIX_MCA_gds", "hash", 0);
}

}  // namespace

MpiRank initialize_mpi() {
  if (!initialized()) {
    exchange_addresses_on_demand();
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    expect(provided >= MPI_THREAD_SERIALIZED, "this MPI cannot be called from a communication thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  MpiRank place;
  MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &place.size);
  MPI_Comm host;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, place.rank, MPI_INFO_NULL, &host),
        "MPI_Comm_split_type");
  MPI_Comm_rank(host, &place.local_rank);
  MPI_Comm_size(host, &place.local_size);
  MPI_Comm_free(&host);
  return place;
}

void finalize_mpi() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!initialized() || finalized) return;
  report_progress(leaving_phase);
  MPI_Finalize();
}

void abort_mpi(int exit_code) {
  // A supervisor sees the end of each rank. An abort would end the keepers as well.
  if (initialized() && !is_supervised()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  ::_exit(exit_code);
}

bool mpi_understands_pmi2() {
#if defined(OPEN_MPI)
  return false;
#else
  return true;
#endif
}

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  check(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  const std::string all(text);
  return all.substr(0, all.find_first_of(",\n"));
}

std::shared_ptr<Communicator> make_mpi_communicator(const MpiRank& place) {
  // A duplicate keeps these messages apart from those of a program that also uses MPI.
  MPI_Comm own;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &own), "MPI_Comm_dup");
  return std::make_shared<MpiCommunicator>(own, place);
}

}  // namespace lockstep

#else

namespace lockstep {

MpiRank initialize_mpi() {
  throw UserError(
      "this build has no MPI: configure with LOCKSTEP_MPI=ON (docs/install.md), or start one rank without "
      "mpirun");
}
void finalize_mpi() {}
void abort_mpi(int exit_code) { ::_exit(exit_code); }
bool mpi_understands_pmi2() { return false; }
std::string mpi_library() { return ""; }
std::shared_ptr<Communicator> make_mpi_communicator(const MpiRank&) { return nullptr; }

}  // namespace lockstep

#endif
