// Runs the command as a child process, as a shell would: its exit code, its output, and its own
// folder.
// Not: a shell; arguments are passed as they are.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace support {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool memory_can_be_limited = false;  // shadow memory takes terabytes of addresses
#else
inline constexpr bool memory_can_be_limited = true;
#endif

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// An empty folder that vanishes with the object.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tawpipe-test-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream{path_ / name, std::ios::binary} << text;
    return *this / name;
  }
  bool is_empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::filesystem::path path_;
};

struct Result {
  int code = -1;  ///< 128 + the signal's number if it was killed
  std::string out;
  std::string err;
  int processor_seconds = 0;  ///< which a busy machine does not change
};

struct RunOptions {
  std::string standard_output = {};  ///< a file to write to instead of `Result::out`
  bool memory_limit = false;         ///< 8 GB of addresses
  std::int64_t file_limit = 0;       ///< bytes that a file may have: what a full disk is; 0: any
};

/// Runs `tawpipe arguments...`, without a limit of time: ctest has one.
inline Result run(std::vector<std::string> arguments, const RunOptions& options = {}) {
  const Folder folder;
  const std::string out = options.standard_output.empty() ? folder / "out" : options.standard_output;
  const std::string err = folder / "err";
  arguments.insert(arguments.begin(), TAWPIPE_COMMAND);
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is ended leaves no command
    const int out_file = open(out.c_str(), O_WRONLY | O_CREAT, 0600);
    const int err_file = open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    if (out_file < 0 || err_file < 0 || dup2(out_file, STDOUT_FILENO) < 0 || dup2(err_file, STDERR_FILENO) < 0) _exit(126);
    if (options.memory_limit && memory_can_be_limited) {
      const rlimit limit{rlim_t{8} << 30, rlim_t{8} << 30};
      setrlimit(RLIMIT_AS, &limit);
    }
    if (options.file_limit > 0) {
      const rlimit limit{static_cast<rlim_t>(options.file_limit), static_cast<rlim_t>(options.file_limit)};
      setrlimit(RLIMIT_FSIZE, &limit);
      std::signal(SIGXFSZ, SIG_IGN);
    }
    setenv("COLUMNS", "1000", 0);  // so that no sentence is broken where a test looks for it
    execv(TAWPIPE_COMMAND, argv.data());
    _exit(127);
  }
  int status = 0;
  rusage used{};
  REQUIRE(wait4(child, &status, 0, &used) == child);
  Result result;
  result.processor_seconds = static_cast<int>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (options.standard_output.empty()) result.out = read_file(out);
  result.err = read_file(err);
  return result;
}

/// The words of a command line without quotes: `words("list models")`.
inline std::vector<std::string> words(const std::string& line) {
  std::istringstream stream{line};
  std::vector<std::string> parts;
  for (std::string word; stream >> word;) parts.push_back(word);
  return parts;
}

inline Result run(const std::string& line, const RunOptions& options = {}) { return run(words(line), options); }

/// What everything that goes wrong must look like: the code, nothing on standard output, one line
/// on standard error.
inline void check_complaint(const Result& result, int code, const std::vector<std::string>& parts) {
  CAPTURE(result.err);
  CHECK(result.code == code);
  CHECK(result.err.starts_with("tawpipe: "));
  CHECK(result.err.find('\n') == result.err.size() - 1);
  for (const auto& part : parts) {
    CAPTURE(part);
    CHECK(result.err.find(part) != std::string::npos);
  }
}

/// Bad usage or input: exit code 2, nothing printed.
inline void check_refused(const Result& result, const std::vector<std::string>& parts) {
  check_complaint(result, 2, parts);
  CHECK(result.out.empty());
}

}  // namespace support
