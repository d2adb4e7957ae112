// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

namespace detail {
class FlightRecorder;
struct SharedMemory;
}  // namespace detail

/// A block of memory that is sent to another rank or received from it.
template <class Byte>
struct Message {
  int peer = 0;
  Byte* data = nullptr;
  int64_t bytes = 0;
};
using SentMessage = Message<const std::byte>;
using ReceivedMessage = Message<std::byte>;

/// Messages that travel at the same time.
struct MessageRound {
  std::vector<SentMessage> sends;
  std::vector<ReceivedMessage> receives;
};

/// Returns the total bytes of the messages.
int64_t bytes_of(std::span<const SentMessage> messages);

/// A group of ranks that exchange memory. It is only a transport: the engine fixes the order of additions,
/// except for native_all_reduce(). All ranks call the same operations in the same order. Every call is
/// written to the flight record. At its deadline a call throws Error naming the missing rank, if it is known.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  virtual ~Communicator();

  int rank() const { return rank_; }
  int size() const { return size_; }

  void barrier();
  void broadcast(void* data, int64_t bytes, int root);
  /// Gathers a block of `bytes` from every rank into `all`, in rank order.
  void all_gather(const void* mine, int64_t bytes, void* all);
  /// Returns the number of rank `root` on all ranks.
  template <class T>
  T broadcast_value(T value, int root) {
    broadcast(&value, sizeof value, root);
    return value;
  }
  /// Gathers a number from every rank, in rank order.
  template <class T>
  std::vector<T> all_gather_value(const T& mine) {
    std::vector<T> all(static_cast<size_t>(size_));
    all_gather(&mine, sizeof mine, all.data());
    return all;
  }
  /// Sends and receives all messages at once. The k-th send to a peer matches that peer's k-th receive from
  /// this rank.
  void exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives);
  /// Runs one exchange after another as one collective. All ranks have equally many rounds.
  void exchange(std::span<const MessageRound> rounds);
  /// Adds the values of all ranks in an order that the transport chooses (dist.reduction = native).
  void native_all_reduce(float* values, int64_t count);

  /// Gathers texts of any length, in rank order.
  std::vector<std::string> all_gather_text(const std::string& mine);
  std::string broadcast_text(std::string text, int root);
  /// Returns true on all ranks if `holds` is true on each of them.
  bool on_every_rank(bool holds);

  /// Makes one zeroed block per rank, or one for all (`is_common`), that all ranks can address. Returns null
  /// if the ranks are on several hosts, or if the memory is not available (rank 0 then logs the reason).
  virtual std::shared_ptr<detail::SharedMemory> share(int64_t bytes, bool is_common = false) = 0;

  /// Sets the time after which collectives fail. The default is 60 s.
  void set_timeout(double seconds) { timeout_seconds_ = seconds; }
  double timeout() const { return timeout_seconds_; }

  /// Runs an operation that ranks perform together in another way (through shared memory). Writes it to the
  /// flight record.
  void recorded(const char* name, int64_t bytes, const std::function<void()>& operation);

  /// Makes every wait of this rank throw, now and later. A rank that is going down calls it while another of
  /// its threads waits for peers.
  void cancel() { cancelled_.store(true); }
  const std::atomic<bool>& cancelled() const { return cancelled_; }

  /// Keeps the flight record in `directory` (empty: in memory), in one file per rank. All ranks call it.
  void record_flights_in(const std::string& directory);
  detail::FlightRecorder& recorder() { return *recorder_; }
  /// Describes the failure of a collective, with the ranks that are behind if flight records are kept.
  std::string failure_of(const char* name, int64_t bytes, uint64_t sequence,
                         const std::string& problem) const;

 protected:
  Communicator(int rank, int size);

  virtual void do_barrier() = 0;
  virtual void do_broadcast(std::byte* data, int64_t bytes, int root) = 0;
  virtual void do_all_gather(const std::byte* mine, int64_t bytes, std::byte* all) = 0;
  virtual void do_exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives) = 0;
  virtual void do_native_all_reduce(float* values, int64_t count) = 0;

 private:
  std::string who_is_behind() const;

  int rank_;
  int size_;
  double timeout_seconds_ = 60.0;
  std::atomic<bool> cancelled_{false};
  std::string flight_directory_;
  int64_t job_ = 0;  ///< distinguishes this run's flight records from those of other runs
  std::unique_ptr<detail::FlightRecorder> recorder_;
};

/// Lifts the deadline of a rank's collectives during its lifetime. All ranks make one where they wait for
/// work that only some of them do, such as reading or writing a file: it may take longer than any collective.
class NoTimeout {
 public:
  explicit NoTimeout(Communicator& communicator)
      : communicator_(communicator), seconds_(communicator.timeout()) {
    communicator.set_timeout(std::numeric_limits<double>::infinity());
  }
  ~NoTimeout() { communicator_.set_timeout(seconds_); }
  NoTimeout(const NoTimeout&) = delete;
  NoTimeout& operator=(const NoTimeout&) = delete;

 private:
  Communicator& communicator_;
  double seconds_;
};

}  // namespace lockstep
