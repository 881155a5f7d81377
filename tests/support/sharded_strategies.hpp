// The strategies of sharded data parallelism, with the closed forms of their traffic and memory.
// Not: their schedules (schedules/sharded.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tawpipe/schedules/sharded.hpp"

namespace support {

/// A fraction of what a model or a layer takes.
struct Ratio {
  std::int64_t part = 0;
  std::int64_t whole = 1;
};

struct Strategy {
  std::string name;
  tawpipe::ScheduleOptions options;
  tawpipe::schedules::Scope weights;
  tawpipe::schedules::Scope gradients;
  tawpipe::schedules::Scope optimizer;
  /// Bytes that leave a node in an iteration, of W bytes of weights, with P ranks in D nodes and A
  /// microbatches a rank.
  Ratio (*egress)(std::int64_t p, std::int64_t d, std::int64_t a);
  /// Model states of a rank, in bytes a parameter, with G ranks a node.
  Ratio (*states)(std::int64_t p, std::int64_t g);
};

inline std::vector<Strategy> strategies() {
  using tawpipe::schedules::Scope;
  constexpr Scope replicated = Scope::replicated;
  constexpr Scope node = Scope::node;
  constexpr Scope all = Scope::all;
  using I = std::int64_t;
  return {
      {"ddp",
       {},
       replicated,
       replicated,
       replicated,
       [](I p, I, I) {
         return Ratio{2 * (p - 1), p};
       },
       [](I, I) {
         return Ratio{16, 1};
       }},
      {"ddp",
       {{"collectives", "two-level"}},
       replicated,
       replicated,
       replicated,
       [](I, I d, I) {
         return Ratio{2 * (d - 1), d};
       },
       [](I, I) {
         return Ratio{16, 1};
       }},
      {"zero1",
       {},
       replicated,
       replicated,
       all,
       [](I p, I, I) {
         return Ratio{2 * (p - 1), p};
       },
       [](I p, I) {
         return Ratio{4 * p + 12, p};
       }},
      {"zero1",
       {{"collectives", "two-level"}},
       replicated,
       replicated,
       all,
       [](I, I d, I) {
         return Ratio{2 * (d - 1), d};
       },
       [](I p, I) {
         return Ratio{4 * p + 12, p};
       }},
      {"zero2",
       {},
       replicated,
       all,
       all,
       [](I p, I, I a) {
         return Ratio{(a + 1) * (p - 1), p};
       },
       [](I p, I) {
         return Ratio{2 * p + 14, p};
       }},
      {"zero2",
       {{"collectives", "two-level"}},
       replicated,
       all,
       all,
       [](I, I d, I a) {
         return Ratio{(a + 1) * (d - 1), d};
       },
       [](I p, I) {
         return Ratio{2 * p + 14, p};
       }},
      {"fsdp",
       {},
       all,
       all,
       all,
       [](I p, I, I a) {
         return Ratio{3 * a * (p - 1), p};
       },
       [](I p, I) {
         return Ratio{16, p};
       }},
      {"fsdp",
       {{"reshard", "off"}},
       all,
       all,
       all,
       [](I p, I, I a) {
         return Ratio{2 * a * (p - 1), p};
       },
       [](I p, I) {
         return Ratio{16, p};
       }},
      {"fsdp",
       {{"collectives", "two-level"}},
       all,
       all,
       all,
       [](I, I d, I a) {
         return Ratio{3 * a * (d - 1), d};
       },
       [](I p, I) {
         return Ratio{16, p};
       }},
      {"hpz",
       {{"collectives", "flat"}},
       all,
       all,
       all,
       [](I p, I, I a) {
         return Ratio{2 * a * (p - 1), p};
       },
       [](I p, I g) {
         return Ratio{16 * g + 2 * p, p * g};
       }},
      {"hpz",
       {},
       all,
       all,
       all,
       [](I, I d, I a) {
         return Ratio{2 * a * (d - 1), d};
       },
       [](I p, I g) {
         return Ratio{16 * g + 2 * p, p * g};
       }},
      {"hsdp",
       {},
       node,
       node,
       node,
       [](I, I d, I) {
         return Ratio{2 * (d - 1), d};
       },
       [](I, I g) {
         return Ratio{16, g};
       }},
      {"hsdp",
       {{"reduce", "each"}},
       node,
       node,
       node,
       [](I, I d, I a) {
         return Ratio{2 * a * (d - 1), d};
       },
       [](I, I g) {
         return Ratio{16, g};
       }},
      {"hfsdp",
       {},
       node,
       node,
       all,
       [](I, I d, I) {
         return Ratio{2 * (d - 1), d};
       },
       [](I p, I g) {
         return Ratio{4 * p + 12 * g, p * g};
       }},
  };
}

}  // namespace support
