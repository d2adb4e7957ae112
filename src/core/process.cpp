// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <random>
#include <sched.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

std::vector<std::string> environment_with(const std::map<std::string, std::string>& additions) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!additions.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : additions) all.push_back(concat(name, "=", value));
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

void restore_signals() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// The data for a child to become the program, made before the fork: afterwards nothing may be allocated.
struct Image {
  const char* path;
  char* const* arguments;
  char* const* environment;
  pid_t parent;
  int output;   ///< -1: the parent's
  int errors;   ///< -1: the parent's
  int input;    ///< -1: the parent's
  int problem;  ///< receives errno if the program cannot be started
};

/// Returns the fields of /proc/<pid>/stat after the name (it may contain anything), from the state on.
std::istringstream status_of(pid_t process) {
  const std::string text = read_file(concat("/proc/", process, "/stat")).value_or("");
  return std::istringstream(text.substr(text.rfind(')') + 1));
}

[[noreturn]] void become(const Image& image) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A kernel may let only ancestors trace a process. This allows debuggers that the parent starts, too.
  ::prctl(PR_SET_PTRACER, image.parent);
  // The parent may have ended before prctl() was called.
  if (::getppid() != image.parent) ::_exit(1);
  restore_signals();
  if (image.output >= 0) ::dup2(image.output, STDOUT_FILENO);
  if (image.errors >= 0) ::dup2(image.errors, STDERR_FILENO);
  if (image.input >= 0) ::dup2(image.input, STDIN_FILENO);
  ::execve(image.path, image.arguments, image.environment);
  const int problem = errno;
  [[maybe_unused]] const ssize_t told = ::write(image.problem, &problem, sizeof problem);
  ::_exit(127);
}

}  // namespace

std::string describe(const Ending& ending) {
  if (ending.signal == 0) return concat("exit code ", ending.exit_code);
  const char* name = ::sigabbrev_np(ending.signal);
  if (!name) return concat("signal ", ending.signal);
  return concat("SIG", name, " (", lower_case(::sigdescr_np(ending.signal)), ")");
}

Pipe::Pipe(int reading_flags) {
  int ends[2];
  const bool is_made = ::pipe2(ends, O_CLOEXEC) == 0;
  expect(is_made, "cannot make a pipe: ", std::strerror(errno));
  reading = Descriptor(ends[0]);
  writing = Descriptor(ends[1]);
  ::fcntl(reading.get(), F_SETFL, reading_flags);
}

Process::Process(const ProcessOptions& options) {
  const std::string& name = options.command.at(0);
  const std::string path = find_program(name);
  require(!path.empty(), "cannot start ", name, ": there is no such program");
  std::vector<std::string> arguments = options.command;
  std::vector<std::string> environment = environment_with(options.environment);
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  Pipe problem, output(O_NONBLOCK);
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Image image{.path = path.c_str(),
                    .arguments = argument_pointers.data(),
                    .environment = environment_pointers.data(),
                    .parent = ::getpid(),
                    .output = options.is_piped ? output.writing.get() : options.output,
                    .errors = options.is_piped ? output.writing.get() : options.errors,
                    .input = options.without_input ? nothing.get() : -1,
                    .problem = problem.writing.get()};
  id_ = ::fork();
  expect(id_ >= 0, "cannot start ", name, ": ", std::strerror(errno));
  if (id_ == 0) become(image);
  ::setpgid(id_, id_);
  problem.writing.reset();
  int reason = 0;
  const ssize_t heard = ::read(problem.reading.get(), &reason, sizeof reason);
  if (heard == sizeof reason) {
    ::waitpid(id_, nullptr, 0);
    throw UserError(concat("cannot start ", path, ": ", std::strerror(reason)));
  }
  descriptor_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, id_, 0)));
  if (options.is_piped) output_ = std::move(output.reading);
}

Process::~Process() {
  if (ending()) return;
  ::kill(-id_, SIGKILL);
  while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<Ending> Process::ending() {
  siginfo_t information{};
  if (ending_ || ::waitid(P_PID, static_cast<id_t>(id_), &information, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      information.si_pid == 0)
    return ending_;
  // The group is killed before the child is reaped, because afterwards its id may be reused.
  ::kill(-id_, SIGKILL);
  int status = 0;
  ::waitpid(id_, &status, 0);
  return ending_ = WIFSIGNALED(status) ? Ending{.signal = WTERMSIG(status)}
                                       : Ending{.exit_code = WEXITSTATUS(status)};
}

std::optional<Ending> Process::wait(double seconds) {
  if (!ending()) wait_for_any({descriptor_.get()}, seconds);
  return ending();
}

std::string Process::read_output(size_t most_bytes) {
  std::string text;
  std::array<char, 8192> part{};
  while (output_ && text.size() < most_bytes) {
    const ssize_t count = ::read(output_.get(), part.data(), std::min(part.size(), most_bytes - text.size()));
    if (count > 0) text.append(part.data(), static_cast<size_t>(count));
    if (count == 0) output_.reset();
    if (count < 0 && errno != EINTR) break;
  }
  return text;
}

void Process::signal(int number) {
  if (!ending()) ::kill(id_, number);
}

void Process::signal_group(int number) {
  if (!ending()) ::kill(-id_, number);
}

CommandResult run_within(double deadline_seconds, const std::vector<std::string>& command,
                         const std::map<std::string, std::string>& environment) {
  constexpr double polite_seconds = 3.0;
  constexpr size_t rest_bytes = size_t(1) << 20;  // more than a pipe holds
  CommandResult result;
  try {
    Process process(
        {.command = command, .environment = environment, .is_piped = true, .without_input = true});
    const auto hear_for = [&](double seconds) {
      const Clock::time_point deadline = after(seconds);
      while (!process.ending() && Clock::now() < deadline) {
        wait_for_any({process.descriptor(), process.output()}, -seconds_since(deadline));
        result.output += process.read_output();
      }
    };
    hear_for(deadline_seconds);
    result.timed_out = !process.ending();
    if (result.timed_out) {
      // On SIGTERM a launcher ends its ranks, which are in groups of their own.
      process.signal_group(SIGTERM);
      hear_for(polite_seconds);
      process.signal_group(SIGKILL);
    }
    result.ending = process.wait(polite_seconds).value_or(Ending{.signal = SIGKILL});
    result.output += process.read_output(rest_bytes);
  } catch (const UserError& problem) {
    return {.ending = {.exit_code = 127}, .timed_out = false, .output = problem.what()};
  }
  return result;
}

char process_state(pid_t process) {
  char state = '\0';
  status_of(process) >> state;
  return state;
}

pid_t parent_of(pid_t process) {
  char state = '\0';
  pid_t parent = 0;
  status_of(process) >> state >> parent;
  return parent;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, HOST_NAME_MAX) == 0 ? name : "unknown";
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

const std::string& process_mark() {
  static const std::string mark = concat(::getpid(), "-", std::random_device()());
  return mark;
}

std::string allowed_cores() {
  // Linux refuses a mask that is too small for the machine.
  for (size_t most = CPU_SETSIZE; most <= size_t{1} << 20; most *= 2) {
    std::vector<cpu_set_t> mask(most / CPU_SETSIZE);
    const size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, mask.data()) == 0) {
      std::string cores(most, '0');
      for (size_t core = 0; core < most; ++core)
        if (CPU_ISSET_S(core, bytes, mask.data())) cores[core] = '1';
      return cores;
    }
    if (errno != EINVAL) break;
  }
  return "1";
}

int available_cores() { return static_cast<int>(std::ranges::count(allowed_cores(), '1')); }

}  // namespace lockstep
