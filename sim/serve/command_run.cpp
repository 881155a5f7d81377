// Starts, reads and ends the process of a run.
#include "command_run.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::sim {

namespace {

constexpr std::size_t most_output = 64U << 20U;  // ten times the page of `plan` on 16 devices
constexpr std::size_t most_errors = 64U << 10U;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool limits_memory = false;  // of which a sanitizer takes terabytes for itself
#else
constexpr bool limits_memory = true;
#endif
constexpr std::chrono::seconds time_to_end{5};  // a told search answers within 0.6 s (plan.cpp), and writes its page

[[noreturn]] void fail(int why) { throw Error(concat("this machine has no room for another answer: ", std::strerror(why))); }

std::pair<Descriptor, Descriptor> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail(errno);
  return {Descriptor{ends[0]}, Descriptor{ends[1]}};
}

/// Appends what there is, and closes the pipe at its end. @param most  of `into`; beyond it, the last of it where it `forgets`
void read_some(Descriptor& pipe, std::string& into, std::size_t most, bool forgets) {
  std::array<char, 1U << 16U> some{};
  while (pipe.is_open() && (forgets || into.size() <= most)) {
    const ssize_t count = ::read(pipe.number(), some.data(), some.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return pipe.close();
    into.append(some.data(), static_cast<std::size_t>(count));
    if (forgets && into.size() > most) into.erase(0, into.size() - most);
  }
}

void limit(decltype(RLIMIT_CORE) what, rlim_t most) {
  const rlimit both{most, most};
  ::setrlimit(what, &both);
}

}  // namespace

CommandRun::CommandRun(std::vector<std::string> arguments, const RunLimits& limits) : until_{Clock::now() + limits.time} {
  start(arguments, limits.memory);
}

CommandRun::~CommandRun() { stop(RunEnd::Why::ended); }

void CommandRun::start(std::vector<std::string>& arguments, double memory) {
  std::string name = "tawpipe";
  std::vector<char*> words{name.data()};
  for (std::string& word : arguments) words.push_back(word.data());
  words.push_back(nullptr);
  auto [output, to_output] = make_pipe();
  auto [errors, to_errors] = make_pipe();
  const pid_t server = ::getpid();
  process_ = ::fork();
  if (process_ < 0) fail(errno);
  if (process_ == 0) {  // the server has one thread: all that may be called otherwise may be called here
    ::setpgid(0, 0);    // Ctrl-C is for the server
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // From here no name of a model leads to a file: this folder has none that may be read, and no other folders.
    if (::getppid() != server || ::chdir("/proc/self/ns") != 0) ::_exit(126);
    if (limits_memory) limit(RLIMIT_DATA, static_cast<rlim_t>(memory));
    limit(RLIMIT_CORE, 0);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
    ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    ::dup2(to_output.number(), STDOUT_FILENO);
    ::dup2(to_errors.number(), STDERR_FILENO);
    ::execv("/proc/self/exe", words.data());
    ::_exit(126);
  }
  for (const Descriptor* pipe : {&output, &errors}) ::fcntl(pipe->number(), F_SETFL, O_NONBLOCK);
  output_ = std::move(output);
  errors_ = std::move(errors);
}

bool CommandRun::stop(RunEnd::Why why) {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(std::exchange(process_, -1), nullptr, 0);
  }
  end_.why = why;
  return true;
}

bool CommandRun::go_on() {
  read_some(output_, end_.output, most_output, false);
  read_some(errors_, end_.errors, most_errors, true);
  if (end_.output.size() > most_output) return stop(RunEnd::Why::too_large);
  if (!output_.is_open() && !errors_.is_open()) {
    int status = 0;
    ::waitpid(std::exchange(process_, -1), &status, 0);
    end_.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (told_to_end_ && (end_.code < 0 || end_.output.empty())) end_.why = RunEnd::Why::too_long;
    return true;
  }
  if (Clock::now() < until_) return false;
  if (told_to_end_) return stop(RunEnd::Why::too_long);
  told_to_end_ = true;
  until_ += time_to_end;
  ::kill(process_, SIGINT);
  return false;
}

}  // namespace tawpipe::sim
