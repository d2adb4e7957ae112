// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "lockstep/core/error.h"
#include "support/eventually.h"
#include "support/program.h"

namespace lockstep {

/// Several hosts on one switch, made of this machine's namespaces. Each has its own name, addresses,
/// processes, /tmp and /dev/shm. No namespace has a name outside, so all of them end with the test's process,
/// however it ends.
class NamespaceHosts {
 public:
  /// A command that runs on a host.
  class Command {
   public:
    Command(pid_t process, std::string folder) : process_(process), folder_(std::move(folder)) {}
    Command(Command&& other) noexcept : process_(std::exchange(other.process_, 0)), folder_(other.folder_) {}
    ~Command() {
      if (process_ != 0) kill_and_wait(process_);
    }

    std::string out() const { return read_text(folder_ + "/out"); }
    std::string errors() const { return read_text(folder_ + "/errors"); }
    std::string pid_file() const { return folder_ + "/pid"; }
    /// Waits for the end of the command. Returns its exit code, or -1 if it did not end in time.
    int wait(double seconds = 300.0) {
      int status = 0;
      const bool ended =
          eventually([&] { return ::waitpid(process_, &status, WNOHANG) == process_; }, seconds);
      if (!ended) return -1;
      process_ = 0;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    bool says(const std::string& text, double seconds = 180.0) const {
      return eventually([&] { return (errors() + out()).find(text) != std::string::npos; }, seconds);
    }

   private:
    pid_t process_;
    std::string folder_;
  };

  /// Returns why this machine cannot have such hosts. It is empty if it can.
  static std::string obstacle() {
    if (::geteuid() != 0) return "namespaces of the network need root";
    if (::system("command -v ip unshare nsenter >/dev/null") != 0) return "iproute2 or util-linux is missing";
    const Outcome made =
        run_command("unshare -n -m -u -p --fork true && unshare -n ip link add br0 type bridge");
    return made.exit_code == 0 ? "" : "namespaces cannot be made here: " + made.errors;
  }

  /// Makes the hosts. `families` is "4", "6" or "46". `shared` has the directories of the first host that the
  /// test reads, too.
  NamespaceHosts(int hosts, const std::string& families, const std::vector<std::string>& shared) {
    switch_ = spawn({"unshare", "-n", "sleep", "infinity"});
    wait_for_network(switch_);
    enter(switch_, "-n", "ip link add br0 type bridge && ip link set br0 up");
    for (int host = 0; host < hosts; ++host) add(host, families, shared);
  }
  ~NamespaceHosts() {
    for (const Host& host : hosts_) kill_and_wait(host.keeper);
    kill_and_wait(recorder_);
    kill_and_wait(switch_);
  }
  NamespaceHosts(const NamespaceHosts&) = delete;
  NamespaceHosts& operator=(const NamespaceHosts&) = delete;

  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  static std::string address6(int host) { return "fd77::" + std::to_string(host + 1); }
  static std::string name(int host) { return std::string("host-") + char('a' + host); }

  /// Starts a command on a host and keeps its output.
  Command start(int host, const std::string& command) {
    const std::string folder = directory_ / concat("command", ++commands_);
    std::filesystem::create_directory(folder);
    const std::string line = "cd /; echo $$ >" + folder + "/pid; exec " + command + " >" + folder +
                             "/out 2>" + folder + "/errors </dev/null";
    return {spawn(inside(hosts_[size_t(host)].init, line)), folder};
  }
  /// Runs a command on a host to its end. Returns its exit code.
  int run(int host, const std::string& command) { return start(host, command).wait(); }
  void signal(int host, const Command& command, const std::string& name) {
    run(host, "kill -s " + name + " $(cat " + command.pid_file() + ")");
  }
  /// Cuts the cable between a host and the switch. mend() repairs it.
  void cut(int host) { enter(switch_, "-n", "ip link set port" + std::to_string(host) + " down"); }
  void mend(int host) { enter(switch_, "-n", "ip link set port" + std::to_string(host) + " up"); }
  /// Switches the power off. All processes of the host end at once.
  void switch_off(int host) { kill_and_wait(std::exchange(hosts_[size_t(host)].keeper, 0)); }
  /// Records every frame that passes the switch from now on in a file.
  void record(const std::string& file) {
    recorder_ = ::fork();
    if (recorder_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::string path = "/proc/" + std::to_string(switch_) + "/ns/net";
    const bool inside = ::setns(::open(path.c_str(), O_RDONLY | O_CLOEXEC), CLONE_NEWNET) == 0;
    const int socket = inside ? ::socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)) : -1;
    const int room = 64 << 20;  // for frames that arrive while this process waits for a core
    ::setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    std::ofstream out(file, std::ios::binary);
    std::vector<char> frame(1 << 17);
    for (ssize_t count = 0; (count = ::recv(socket, frame.data(), frame.size(), 0)) > 0; out.flush())
      out.write(frame.data(), count);
    ::_exit(1);
  }
  /// Returns whether a process of this name runs on the host.
  bool runs(int host, const std::string& program) {
    return run(host, "sh -c 'for f in /proc/[0-9]*/stat; do read line <$f && case \"$line\" in *\"(" +
                         program + ") Z\"*) ;; *\"(" + program + ")\"*) exit 0;; esac; done; exit 1'") == 0;
  }

 private:
  struct Host {
    pid_t keeper = 0;  ///< a process outside; the host ends with it
    pid_t init = 0;    ///< the host's first process, by its number outside
  };

  static pid_t spawn(const std::vector<std::string>& words) {
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  static void kill_and_wait(pid_t process) {
    if (process == 0) return;
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
  static std::vector<std::string> inside(pid_t init, const std::string& line) {
    return {"nsenter", "-t", std::to_string(init), "-n", "-m", "-u", "-p", "bash", "-c", line};
  }
  static void enter(pid_t process, const std::string& spaces, const std::string& line) {
    const Outcome outcome =
        run_command("nsenter -t " + std::to_string(process) + " " + spaces + " sh -c '" + line + "'");
    if (outcome.exit_code != 0) throw std::runtime_error(line + ": " + outcome.errors);
  }
  static void wait_for_network(pid_t process) {
    const std::string own = std::filesystem::read_symlink("/proc/self/ns/net");
    const std::string path = "/proc/" + std::to_string(process) + "/ns/net";
    std::error_code failure;
    if (!eventually([&] { return std::filesystem::read_symlink(path, failure) != own && !failure; }))
      throw std::runtime_error("no namespace of the network");
  }

  void add(int number, const std::string& families, const std::vector<std::string>& shared) {
    const std::string stage = directory_ / concat("tmp", number);
    std::filesystem::create_directory(stage);
    std::vector<std::string> kept = {directory_.path(), LOCKSTEP_PROGRAM_DIR, LOCKSTEP_SOURCE_DIR};
    if (number == 0) kept.insert(kept.end(), shared.begin(), shared.end());
    std::string script = "set -e; hostname " + name(number) + "; mount -t tmpfs tmpfs " + stage + "; ";
    // Files of the test and of the build in /tmp stay visible in the host's own /tmp.
    for (const std::string& path : kept)
      if (path.starts_with("/tmp/"))
        script += "mkdir -p " + stage + path.substr(4) + "; mount --bind " + path + " " + stage +
                  path.substr(4) + "; ";
    script += "mount --rbind " + stage +
              " /tmp; mount -t tmpfs tmpfs /dev/shm; mount -t proc proc /proc; "
              "ip link set lo up; touch " +
              stage + "-ready; while :; do sleep 1000; done";
    Host host;
    host.keeper = spawn({"unshare", "-n", "-m", "-u", "-p", "--fork", "--kill-child", "bash", "-c", script});
    const std::string children =
        "/proc/" + std::to_string(host.keeper) + "/task/" + std::to_string(host.keeper) + "/children";
    if (!eventually([&] { return std::filesystem::exists(stage + "-ready"); }))
      throw std::runtime_error("host " + name(number) + " does not start");
    host.init = std::stoi(read_text(children));
    hosts_.push_back(host);
    connect(number, host.init, families);
  }

  void connect(int number, pid_t init, const std::string& families) {
    const std::string port = concat("port", number);
    const Outcome cable = run_command("ip link add name eth0 netns " + std::to_string(init) +
                                      " type veth peer name " + port + " netns " + std::to_string(switch_));
    if (cable.exit_code != 0) throw std::runtime_error("no veth: " + cable.errors);
    enter(switch_, "-n", "ip link set " + port + " master br0 && ip link set " + port + " up");
    if (families.find('4') != std::string::npos)
      enter(init, "-n", "ip addr add " + address(number) + "/24 dev eth0");
    if (families.find('6') != std::string::npos)
      enter(init, "-n", "ip addr add " + address6(number) + "/64 dev eth0 nodad");
    enter(init, "-n", "ip link set eth0 up");
  }

  TemporaryDirectory directory_;
  pid_t switch_ = 0;
  pid_t recorder_ = 0;
  std::vector<Host> hosts_;
  int commands_ = 0;
};

}  // namespace lockstep
