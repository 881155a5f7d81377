// Ctrl-C and SIGTERM that end a search but not the command.
// Not: the reaction of a search (it returns the best so far).
#pragma once

#include <csignal>
#include <cstddef>

namespace tawpipe::sim {

/// The signal that came; 0: none.
inline volatile std::sig_atomic_t interrupted = 0;

/// During its lifetime, Ctrl-C and SIGTERM set `interrupted` and do not end the command; a second one
/// does what it did before. Signals that are ignored stay so. @pre there is no other
class InterruptEndsSearch {
 public:
  InterruptEndsSearch() {
    for (std::size_t i = 0; i < 2; ++i) {
      sigaction(signals[i], nullptr, &before[i]);
      if (before[i].sa_handler == SIG_IGN) continue;
      struct sigaction action {};
      action.sa_handler = [](int signal) {
        interrupted = signal;
        take_back();
      };
      sigaction(signals[i], &action, nullptr);
    }
  }
  InterruptEndsSearch(const InterruptEndsSearch&) = delete;
  InterruptEndsSearch& operator=(const InterruptEndsSearch&) = delete;
  ~InterruptEndsSearch() { take_back(); }

 private:
  static constexpr int signals[] = {SIGINT, SIGTERM};
  static inline struct sigaction before[2]{};

  static void take_back() {
    for (std::size_t i = 0; i < 2; ++i) sigaction(signals[i], &before[i], nullptr);
  }
};

}  // namespace tawpipe::sim
