// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/communicator.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/comm/flight_recorder.h"
#include "lockstep/core/error.h"

namespace lockstep {

int64_t bytes_of(std::span<const SentMessage> messages) {
  int64_t bytes = 0;
  for (const SentMessage& message : messages) bytes += message.bytes;
  return bytes;
}

Communicator::Communicator(int rank, int size)
    : rank_(rank), size_(size), recorder_(std::make_unique<FlightRecorder>()) {}

Communicator::~Communicator() = default;

void Communicator::recorded(const char* name, int64_t bytes, const std::function<void()>& operation) {
  if (size_ == 1) return operation();
  const uint64_t sequence = recorder_->begin(name, bytes);
  try {
    operation();
  } catch (const Error& failure) {
    throw Error(failure_of(name, bytes, sequence, failure.what()));
  }
  recorder_->end(sequence);
}

std::string Communicator::failure_of(const char* name, int64_t bytes, uint64_t sequence,
                                     const std::string& problem) const {
  const std::string behind = who_is_behind();
  return concat(name, " of ", bytes, " bytes, collective ", sequence, ": ", problem,
                behind.empty() ? "" : "; ", behind);
}

std::string Communicator::who_is_behind() const {
  if (flight_directory_.empty()) return "";
  // The storage of the records may hang. The report of this rank must not wait for it.
  constexpr std::chrono::seconds patience{1};
  std::promise<std::string> promise;
  std::future<std::string> report = promise.get_future();
  try {
    std::thread([promise = std::move(promise), directory = flight_directory_, ranks = size_,
                 job = job_]() mutable {
      promise.set_value(lockstep::who_is_behind(directory, ranks, job));
    }).detach();
  } catch (const std::system_error&) {
    return "";  // no thread can be started, and the caller reports another failure
  }
  if (report.wait_for(patience) == std::future_status::ready) return report.get();
  return concat("the flight records in ", flight_directory_, " cannot be read: storage does not answer");
}

void Communicator::barrier() {
  recorded("barrier", 0, [&] { do_barrier(); });
}

void Communicator::broadcast(void* data, int64_t bytes, int root) {
  recorded("broadcast", bytes, [&] { do_broadcast(static_cast<std::byte*>(data), bytes, root); });
}

void Communicator::all_gather(const void* mine, int64_t bytes, void* all) {
  recorded("all_gather", bytes,
           [&] { do_all_gather(static_cast<const std::byte*>(mine), bytes, static_cast<std::byte*>(all)); });
}

void Communicator::exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives) {
  recorded("exchange", bytes_of(sends), [&] { do_exchange(sends, receives); });
}

void Communicator::exchange(std::span<const MessageRound> rounds) {
  int64_t bytes = 0;
  for (const MessageRound& round : rounds) bytes += bytes_of(round.sends);
  recorded("exchange", bytes, [&] {
    for (const MessageRound& round : rounds) do_exchange(round.sends, round.receives);
  });
}

void Communicator::native_all_reduce(float* values, int64_t count) {
  recorded("native_all_reduce", count * 4, [&] { do_native_all_reduce(values, count); });
}

std::vector<std::string> Communicator::all_gather_text(const std::string& mine) {
  const std::vector<int64_t> lengths = all_gather_value(std::ssize(mine));
  const int64_t longest = std::max<int64_t>(1, std::ranges::max(lengths));
  std::string padded = mine;
  padded.resize(static_cast<size_t>(longest));
  std::string all(static_cast<size_t>(longest * size_), '\0');
  all_gather(padded.data(), longest, all.data());
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < lengths.size(); ++rank)
    texts.push_back(all.substr(rank * static_cast<size_t>(longest), static_cast<size_t>(lengths[rank])));
  return texts;
}

std::string Communicator::broadcast_text(std::string text, int root) {
  const int64_t length = broadcast_value(std::ssize(text), root);
  text.resize(static_cast<size_t>(length));
  if (length > 0) broadcast(text.data(), length, root);
  return text;
}

bool Communicator::on_every_rank(bool holds) {
  return std::ranges::count(all_gather_value<char>(holds ? 1 : 0), 0) == 0;
}

void Communicator::record_flights_in(const std::string& directory) {
  // A folder may have files of an earlier run. Rank 0's time distinguishes them.
  job_ = std::chrono::system_clock::now().time_since_epoch().count();
  broadcast(&job_, sizeof(job_), 0);
  recorder_ = std::make_unique<FlightRecorder>(directory.empty() ? "" : flight_path(directory, rank_), job_);
  flight_directory_ = directory;
}

}  // namespace lockstep
