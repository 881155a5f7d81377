// Stacks of a block's threads and the order in which they run: see block_threads.hpp.
// Compiled without sanitizers, which are told of each change of stack and of each wait: what is here
// is shared by all threads of a block and must not look like their race.
#include "software_gpu/block_threads.hpp"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

#ifndef __x86_64__
#include <ucontext.h>
#endif

// Of the sanitizers' runtimes, where one is linked.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake, const void* bottom, std::size_t size);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake, const void** bottom, std::size_t* size);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
[[gnu::weak]] void __tsan_acquire(void* at);
[[gnu::weak]] void __tsan_release(void* at);

/// Goes on where `to` was left, on its stack. *from: this place.
void software_gpu_switch(void** from, void* to);
}

#ifdef __x86_64__
// What a call must keep is pushed on the stack that is left: a swapcontext() without its system call.
asm(R"(
.text
.type software_gpu_switch, @function
software_gpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size software_gpu_switch, . - software_gpu_switch
)");
#else
extern "C" void software_gpu_switch(void** from, void* to) {
  if (*from == nullptr) *from = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(*from), static_cast<ucontext_t*>(to));
}
#endif

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace software_gpu {

namespace {

constexpr unsigned max_threads = 1024;  // of a block, by CUDA's limits
/// A sanitizer writes its report on it. Not a power of two, or all stacks
/// would be in the same lines of the cache.
constexpr std::size_t stack_bytes = 256 * 1024 + 9 * 64;
constexpr unsigned warp_threads = 32;

struct Fibre {
  void* place = nullptr;  ///< where it goes on
  void* fake = nullptr;   ///< the address sanitizer's
  const void* bottom = nullptr;
  std::size_t size = 0;
  void* known_as = nullptr;  ///< by the thread sanitizer
  unsigned thread = 0;
  Fibre* next = nullptr;
};

class Queue {
 public:
  bool empty() const { return first_ == nullptr; }
  void push(Fibre* fibre) {
    fibre->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = fibre;
    last_ = fibre;
  }
  Fibre* pop() {
    Fibre* const fibre = first_;
    first_ = fibre->next;
    return fibre;
  }

 private:
  Fibre* first_ = nullptr;
  Fibre* last_ = nullptr;
};

/// Where threads wait for each other, again and again.
struct Meeting {
  unsigned arrived = 0;
  unsigned round = 0;
  char ordered[2] = {};  ///< what the thread sanitizer knows rounds by: the next may begin before all have left this
  Queue waiting;
};
struct Warp {
  Meeting meeting;
  std::uint64_t given[2][warp_threads];
};

void enter();

/// An operating system's thread's fibres.
class Fibres {
 public:
  ~Fibres() {
    for (unsigned i = 0; i < made_; ++i) {
      if (__tsan_destroy_fiber != nullptr) __tsan_destroy_fiber(all_[i].known_as);
    }
    if (stacks_ != nullptr) munmap(stacks_, max_threads * stack_bytes);
  }

  Threads run(void (*call)(const void*), const void* argument) {
    run_ = call;
    argument_ = argument;
    begun_ = ended_ = 0;
    count_ = blockDim.x;
    waited_ = false;
    main_.known_as = __tsan_get_current_fiber != nullptr ? __tsan_get_current_fiber() : nullptr;
    release(&begin_);
    while (Fibre* const next = choose()) go_to(next);
    acquire(&end_);
    if (ended_ == count_) return waited_ ? Threads::together : Threads::alone;
    forget();
    return Threads::stuck;
  }
  void wait_for_block() { wait(block_, count_, true); }
  std::uint64_t of_other_lane(std::uint64_t given, unsigned distance) {
    Warp& warp = warps_[current_->thread / warp_threads];
    const unsigned first = current_->thread / warp_threads * warp_threads;
    const unsigned lanes = count_ - first < warp_threads ? count_ - first : warp_threads;
    std::uint64_t* const all = warp.given[warp.meeting.round % 2];
    all[current_->thread - first] = given;
    wait(warp.meeting, lanes, false);  // exchanges of registers do not order memory
    const unsigned other = (current_->thread - first) ^ distance;
    return other < lanes ? all[other] : ~std::uint64_t{0};
  }
  /// What a fibre does.
  [[noreturn]] void work() {
    landed();
    while (true) {
      // Another thread on the same stack, unless the sanitizer is to tell them apart.
      do {
        current_->thread = threadIdx.x = begun_++;
        acquire(&begin_);
        run_(argument_);
        release(&end_);
        ++ended_;
      } while (__tsan_create_fiber == nullptr && ready_.empty() && begun_ < count_);
      free_.push(current_);
      leave();
    }
  }

 private:
  static void acquire(void* at) {
    if (__tsan_acquire != nullptr) __tsan_acquire(at);
  }
  static void release(void* at) {
    if (__tsan_release != nullptr) __tsan_release(at);
  }
  /// Who runs next, but the thread that called run().
  Fibre* choose() {
    if (!ready_.empty()) return ready_.pop();
    if (begun_ == count_) return nullptr;
    return free_.empty() ? make() : free_.pop();
  }
  void leave() {
    Fibre* const next = choose();
    go_to(next == nullptr ? &main_ : next);
  }
  void go_to(Fibre* to) {
    Fibre* const from = previous_ = current_;
    current_ = to;
    if (__sanitizer_start_switch_fiber != nullptr) __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->size);
    if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(to->known_as, 1);  // 1: it orders nothing
    software_gpu_switch(&from->place, to->place);
    landed();
  }
  void landed() {
    if (__sanitizer_finish_switch_fiber != nullptr) {
      const void* bottom = nullptr;
      std::size_t size = 0;
      __sanitizer_finish_switch_fiber(current_->fake, &bottom, &size);
      if (previous_ == &main_) {
        main_.bottom = bottom;
        main_.size = size;
      }
    }
    threadIdx.x = current_->thread;
  }
  void wait(Meeting& meeting, unsigned all, bool orders) {
    waited_ = true;
    char* const ordered = &meeting.ordered[meeting.round % 2];
    if (orders) release(ordered);
    if (++meeting.arrived == all) {
      meeting.arrived = 0;
      ++meeting.round;
      while (!meeting.waiting.empty()) ready_.push(meeting.waiting.pop());
    } else {
      meeting.waiting.push(current_);
      leave();
    }
    if (orders) acquire(ordered);
  }
  Fibre* make() {
    if (stacks_ == nullptr) {
      void* const memory =
          mmap(nullptr, max_threads * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) std::perror("stacks of the software GPU"), std::abort();
      madvise(memory, max_threads * stack_bytes, MADV_NOHUGEPAGE);  // most of each stack is never touched
      stacks_ = static_cast<char*>(memory);
    }
    if (made_ == max_threads) std::fputs("a block of the software GPU has too many threads\n", stderr), std::abort();
    Fibre& fibre = all_[made_];
    char* const bottom = stacks_ + made_++ * stack_bytes;
    fibre.bottom = bottom;
    fibre.size = stack_bytes;
    if (__tsan_create_fiber != nullptr) fibre.known_as = __tsan_create_fiber(0);
#ifdef __x86_64__
    // Six registers, and whereto the switch returns; then a call's frame, which nothing returns from.
    auto** const place = reinterpret_cast<void**>(bottom + stack_bytes) - 8;
    place[6] = reinterpret_cast<void*>(&enter);
    fibre.place = place;
#else
    auto* const context = new ucontext_t;
    getcontext(context);
    context->uc_stack.ss_sp = bottom;
    context->uc_stack.ss_size = stack_bytes;
    makecontext(context, &enter, 0);
    fibre.place = context;
#endif
    return &fibre;
  }
  /// Threads that wait for ever: their stacks are lost, for this is an error that ends all work.
  void forget() {
    block_ = {};
    for (Warp& warp : warps_) warp.meeting = {};
  }

  void (*run_)(const void*) = nullptr;
  const void* argument_ = nullptr;
  unsigned count_ = 0;
  unsigned begun_ = 0;
  unsigned ended_ = 0;
  bool waited_ = false;
  char begin_ = 0;
  char end_ = 0;
  Fibre main_;
  Fibre* current_ = &main_;
  Fibre* previous_ = nullptr;
  Queue ready_;
  Queue free_;
  Meeting block_;
  Warp warps_[max_threads / warp_threads];
  Fibre all_[max_threads];
  unsigned made_ = 0;
  char* stacks_ = nullptr;
};

[[gnu::tls_model("initial-exec")]] constinit thread_local Fibres* mine = nullptr;

void enter() { mine->work(); }

}  // namespace

Threads run_threads(void (*run)(const void*), const void* argument) {
  static thread_local const auto owned = std::make_unique<Fibres>();
  mine = owned.get();
  return mine->run(run, argument);
}
void wait_for_block() { mine->wait_for_block(); }
std::uint64_t of_other_lane(std::uint64_t given, unsigned distance) { return mine->of_other_lane(given, distance); }

}  // namespace software_gpu
