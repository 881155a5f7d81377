// Ctrl-C that ends a search but not the command.
// Not: the reaction of a search (it returns the best so far).
#pragma once

#include <csignal>

namespace tawpipe::sim {

inline volatile std::sig_atomic_t interrupted = 0;

/// During its lifetime, Ctrl-C sets `interrupted` and does not end the command; a second one ends
/// the command.
class InterruptEndsSearch {
 public:
  InterruptEndsSearch() {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &before_);
  }
  InterruptEndsSearch(const InterruptEndsSearch&) = delete;
  InterruptEndsSearch& operator=(const InterruptEndsSearch&) = delete;
  ~InterruptEndsSearch() { sigaction(SIGINT, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

}  // namespace tawpipe::sim
