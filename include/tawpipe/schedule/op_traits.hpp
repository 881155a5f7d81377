// What each operation and payload is: one row in a table, from which all other code derives its
// properties.
// Not: where and when a task runs (schedule/task.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tawpipe::inline v0 {

/// What a task does. Each has a row in `detail::op_row`.
enum class Op : std::uint8_t {
  forward,          ///< one stage, one microbatch
  backward,         ///< gradients of inputs and weights together
  backward_input,   ///< gradients of inputs only
  backward_weight,  ///< gradients of weights only
  update,           ///< the optimizer's step on what the rank owns
  idle,             ///< a drawn bubble, as long as one forward of its stage
  pass,             ///< point to point: rank -> peer
  exchange,         ///< point to point both ways at once: rank <-> peer
  broadcast,        ///< root -> group
  reduce,           ///< group -> root, summed
  all_gather,       ///< each member's part -> all members
  reduce_scatter,   ///< summed, each member keeps its part
  all_reduce,       ///< summed, all members keep all
  all_to_all,       ///< each member's block for each member -> that member
  copy_to_host,     ///< the device's memory -> its host's
  copy_from_host,   ///< the host's memory -> the device's
};

/// What a communication carries. Each payload has a row in `detail::payload_row`.
enum class Payload : std::uint8_t {
  nothing,
  weights,
  gradients,
  activations,
  activation_gradients,
  edge_gradients,  ///< of the edges where every rank holds a copy
  scalar,          ///< one number of each rank, such as its part of the gradients' norm
  optimizer_states,
};

/// How a task uses a buffer.
enum class Access : std::uint8_t {
  read,
  write,       ///< the old content is lost
  read_write,  ///< changes it in place
  accumulate,  ///< adds to it; two accumulations are ordered, in any order
};

namespace detail {

/// The accesses of a communication to one rank's buffers, as bits.
enum AccessBits : std::uint8_t { no_access = 0, has_read = 1, has_write = 2, has_read_write = 4, has_accumulate = 8 };

constexpr std::uint8_t access_bit(Access access) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(access)); }

}  // namespace detail

/// Who takes part in an op.
enum class Ends : std::uint8_t {
  rank,          ///< `rank` computes
  pair,          ///< `rank` and `peer`
  group,         ///< the members of `group`, all alike
  rooted_group,  ///< the members of `group`, of which `rank` is the root
  host,          ///< `rank` and the memory of its host
};

/// Which part of the message an end gives or takes.
enum class Part : std::uint8_t {
  nothing,
  own,  ///< the member's part, of as many as the group has members
  whole,
};

/// How bytes travel between the ends: the edges of each algorithm, and how much of a message of B
/// bytes among n members goes over each.
enum class Pattern : std::uint8_t {
  none,             ///< nothing travels
  one_way,          ///< rank -> peer: B
  both_ways,        ///< rank <-> peer: B each way
  chain_from_root,  ///< root -> member -> member: B
  chain_to_root,    ///< member -> member -> root: B
  ring_gather,      ///< each part round the ring: B(n-1)/n
  ring_scatter,     ///< sums of each part round the ring: B(n-1)/n
  /// member -> each other member: of a whole message B each, B/n, or as the pair's size says
  all_pairs,
  ring_sum,   ///< a scatter, then a gather: 2B(n-1)/n; or up and down a tree, B each way
  to_host,    ///< rank -> the memory of its host: B
  from_host,  ///< the memory of the host -> rank: B
};

/// What one end of a communication does.
struct EndTraits {
  Part gives = Part::nothing;
  Part takes = Part::nothing;
  /// AccessBits, at least one is required of an end that sends
  std::uint8_t sends = detail::no_access;
  std::uint8_t receives = detail::no_access;  ///< at least one is required of an end that receives
  std::uint8_t allowed = detail::no_access;   ///< all that are permitted
};

/// Which parts of a stage's work a computation does.
struct Passes {
  bool forward = false;
  bool backward_input = false;  ///< includes the forward again where a stage recomputes it
  bool backward_weight = false;

  constexpr bool any() const { return forward || backward_input || backward_weight; }
  constexpr bool backward() const { return backward_input || backward_weight; }
};

/// The colours of an op.
struct OpColors {
  /// of the palette of chrome://tracing (catapult, tracing/base/color_scheme.html)
  std::string_view trace;
  std::string_view picture;  ///< as Graphviz takes it; light enough to read black text on
  /// in pages and timelines, of a computation; a communication has its payload's
  std::string_view page = {};
};

/// A row of the table of operations.
struct OpTraits {
  std::string_view name;  ///< in reports, traces and files
  Ends ends = Ends::rank;
  EndTraits first{};  ///< `rank`: the source or the root; in a group without a root each member
  EndTraits other{};  ///< `peer`; the members that are not the root
  bool sums = false;  ///< what the ends give is added up; otherwise it is copied
  Pattern pattern = Pattern::none;
  Payload payload = Payload::nothing;  ///< what it carries unless a file says otherwise
  Passes passes{};
  bool work = false;  ///< a computation other than a drawn bubble
  OpColors colors{};
};

/// The kind of numbers in a payload, which determines their size.
enum class Numbers : std::uint8_t {
  none,
  weights,      ///< of parameters
  gradients,    ///< of parameters
  activations,  ///< of tokens: the model's dtype
  single,       ///< float32
  states,       ///< of the optimizer, of parameters
};

/// A row of the table of payloads.
struct PayloadTraits {
  std::string_view name;  ///< in reports and files
  Numbers numbers = Numbers::none;
  std::string_view page_color;  ///< in pages and timelines
};

namespace detail {

/// The table of operations. An op without a row does not compile (-Wswitch is an error in our
/// builds). Colours of pages are Okabe and Ito's, which colour-blind readers can distinguish.
/// Source: Okabe and Ito, Color Universal Design, 2008.
constexpr OpTraits op_row(Op op) {
  constexpr std::uint8_t any = has_read | has_write | has_read_write | has_accumulate;
  constexpr EndTraits sender{Part::whole, Part::nothing, has_read, no_access, has_read};
  constexpr EndTraits copier{Part::whole, Part::whole, has_read, has_write, has_read | has_write};
  // A member of a sum that reads nothing adds zeros; one that writes nothing drops its result.
  constexpr auto summand = [](Part takes) { return EndTraits{Part::whole, takes, no_access, no_access, any}; };
  switch (op) {
    case Op::forward:
      return {.name = "forward",
              .passes = {.forward = true},
              .work = true,
              .colors = {"rail_response", "#8ecae6", "#56b4e9"}};  // blue; sky blue
    case Op::backward:
      return {.name = "backward",
              .passes = {.backward_input = true, .backward_weight = true},
              .work = true,
              .colors = {"thread_state_running", "#95d5b2", "#009e73"}};  // green; bluish green
    case Op::backward_input:
      return {.name = "backward_input",
              .passes = {.backward_input = true},
              .work = true,
              .colors = {"good", "#52b788", "#009e73"}};  // dark green; bluish green
    case Op::backward_weight:
      return {.name = "backward_weight",
              .passes = {.backward_weight = true},
              .work = true,
              .colors = {"olive", "#b5c99a", "#f0e442"}};  // yellow
    case Op::update:
      return {.name = "update", .work = true, .colors = {"detailed_memory_dump", "#cdb4db", "#8a8f98"}};  // purple; grey
    case Op::idle:
      return {.name = "idle", .passes = {.forward = true}, .colors = {"grey", "#e5e5e5", "#d5d8dd"}};
    case Op::pass:
      return {.name = "pass",
              .ends = Ends::pair,
              .first = sender,
              .other = {Part::nothing, Part::whole, no_access, has_write | has_accumulate, has_write | has_accumulate},
              .pattern = Pattern::one_way,
              .payload = Payload::activations,
              .colors = {"thread_state_iowait", "#ffb703"}};  // orange
    case Op::exchange: {
      constexpr EndTraits both{Part::whole, Part::whole, has_read, has_write | has_accumulate,
                               has_read | has_write | has_accumulate};
      return {.name = "exchange",
              .ends = Ends::pair,
              .first = both,
              .other = both,
              .pattern = Pattern::both_ways,
              .payload = Payload::activations,
              .colors = {"bad", "#d4a373"}};  // brown
    }
    case Op::broadcast:
      return {.name = "broadcast",
              .ends = Ends::rooted_group,
              .first = sender,
              .other = {Part::nothing, Part::whole, no_access, has_write, has_write},
              .pattern = Pattern::chain_from_root,
              .payload = Payload::weights,
              .colors = {"yellow", "#ffe66d"}};
    case Op::reduce:
      return {.name = "reduce",
              .ends = Ends::rooted_group,
              .first = {Part::whole, Part::whole, no_access, has_write | has_read_write | has_accumulate, any},
              .other = {Part::whole, Part::nothing, no_access, no_access, has_read},
              .sums = true,
              .pattern = Pattern::chain_to_root,
              .payload = Payload::gradients,
              .colors = {"rail_animation", "#f28482"}};  // red
    case Op::all_gather: {
      constexpr EndTraits member{Part::own, Part::whole, has_read | has_read_write, has_write | has_read_write,
                                 has_read | has_write | has_read_write};
      return {.name = "all_gather",
              .ends = Ends::group,
              .first = member,
              .other = member,
              .pattern = Pattern::ring_gather,
              .payload = Payload::weights,
              .colors = {"background_memory_dump", "#84dcc6"}};  // teal
    }
    case Op::reduce_scatter:
      return {.name = "reduce_scatter",
              .ends = Ends::group,
              .first = summand(Part::own),
              .other = summand(Part::own),
              .sums = true,
              .pattern = Pattern::ring_scatter,
              .payload = Payload::gradients,
              .colors = {"thread_state_uninterruptible", "#e5989b"}};  // mauve
    case Op::all_reduce:
      return {.name = "all_reduce",
              .ends = Ends::group,
              .first = summand(Part::whole),
              .other = summand(Part::whole),
              .sums = true,
              .pattern = Pattern::ring_sum,
              .payload = Payload::gradients,
              .colors = {"terrible", "#ff6b6b"}};  // dark red
    case Op::all_to_all: {
      constexpr EndTraits member{Part::whole, Part::whole, has_read, has_write, has_read | has_write};
      return {.name = "all_to_all",
              .ends = Ends::group,
              .first = member,
              .other = member,
              .pattern = Pattern::all_pairs,
              .payload = Payload::activations,
              .colors = {"rail_load", "#a0c4ff"}};  // dark green
    }
    case Op::copy_to_host:
      return {.name = "copy_to_host",
              .ends = Ends::host,
              .first = copier,
              .pattern = Pattern::to_host,
              .payload = Payload::activations,
              .colors = {"cq_build_passed", "#d0d1ff"}};  // light green
    case Op::copy_from_host:
      return {.name = "copy_from_host",
              .ends = Ends::host,
              .first = copier,
              .pattern = Pattern::from_host,
              .payload = Payload::activations,
              .colors = {"cq_build_attempt_passed", "#bde0fe"}};  // olive green
  }
  return {};  // not an op
}

/// The table of payloads.
constexpr PayloadTraits payload_row(Payload payload) {
  switch (payload) {
    case Payload::nothing:
      return {"nothing", Numbers::none, "#999999"};
    case Payload::weights:
      return {"weights", Numbers::weights, "#e69f00"};  // orange
    case Payload::gradients:
      return {"gradients", Numbers::gradients, "#d55e00"};  // vermilion
    case Payload::activations:
      return {"activations", Numbers::activations, "#0072b2"};  // blue
    case Payload::activation_gradients:
      return {"activation_gradients", Numbers::activations, "#cc79a7"};  // reddish purple
    case Payload::edge_gradients:
      return {"edge_gradients", Numbers::gradients, "#b04a00"};
    case Payload::scalar:
      return {"scalar", Numbers::single, "#999999"};
    case Payload::optimizer_states:
      return {"optimizer_states", Numbers::states, "#6a5acd"};
  }
  return {};  // not a payload
}

/// The number of rows: the first enumerator without one ends the table.
template <class Enum>
constexpr int count_rows(auto row) {
  int count = 0;
  while (!row(static_cast<Enum>(count)).name.empty()) ++count;
  return count;
}

}  // namespace detail

inline constexpr int ops = detail::count_rows<Op>([](Op op) { return detail::op_row(op); });
inline constexpr int payloads = detail::count_rows<Payload>([](Payload payload) { return detail::payload_row(payload); });

namespace detail {

inline constexpr auto op_table = [] {
  std::array<OpTraits, ops> table;
  for (int op = 0; op < ops; ++op) table[static_cast<std::size_t>(op)] = op_row(static_cast<Op>(op));
  return table;
}();

/// Sets of ops, one bit each: a membership test costs a shift.
constexpr std::uint32_t ops_where(auto has) {
  static_assert(ops <= 32);
  std::uint32_t set = 0;
  for (std::uint32_t op = 0; op < ops; ++op) set |= has(op_table[op]) ? 1U << op : 0;
  return set;
}
constexpr bool is_in(std::uint32_t set, Op op) {
  return static_cast<unsigned>(op) < 32 && (set >> static_cast<unsigned>(op) & 1U) != 0;
}

inline constexpr std::uint32_t compute_ops = ops_where([](const OpTraits& op) { return op.ends == Ends::rank; });
inline constexpr std::uint32_t host_ops = ops_where([](const OpTraits& op) { return op.ends == Ends::host; });
inline constexpr std::uint32_t pair_ops = ops_where([](const OpTraits& op) { return op.ends == Ends::pair; });
inline constexpr std::uint32_t rooted_ops = ops_where([](const OpTraits& op) { return op.ends == Ends::rooted_group; });
inline constexpr std::uint32_t group_ops = rooted_ops | ops_where([](const OpTraits& op) { return op.ends == Ends::group; });
inline constexpr std::uint32_t all_pairs_ops = ops_where([](const OpTraits& op) { return op.pattern == Pattern::all_pairs; });
inline constexpr std::uint32_t gather_ops = ops_where([](const OpTraits& op) { return op.first.gives == Part::own; });
inline constexpr std::uint32_t scatter_ops = ops_where([](const OpTraits& op) { return op.first.takes == Part::own; });
inline constexpr std::uint32_t work_ops = ops_where([](const OpTraits& op) { return op.work; });
inline constexpr std::uint32_t stage_ops = ops_where([](const OpTraits& op) { return op.work && op.passes.any(); });
inline constexpr std::uint32_t gradient_ops = ops_where([](const OpTraits& op) { return op.passes.backward_weight; });
inline constexpr std::uint32_t summing_ops = ops_where([](const OpTraits& op) { return op.sums; });
static_assert(ops_where([](const OpTraits& op) { return op.colors.trace.empty() || op.colors.picture.empty(); }) == 0);
static_assert(ops_where([](const OpTraits& op) { return !op.colors.page.empty(); }) == compute_ops);
static_assert(ops_where([](const OpTraits& op) { return op.pattern == Pattern::none; }) == compute_ops);

}  // namespace detail

/// The op's row. @pre op is one of them
constexpr const OpTraits& traits(Op op) { return detail::op_table[static_cast<std::size_t>(op)]; }
/// The payload's row.
constexpr PayloadTraits traits(Payload payload) { return detail::payload_row(payload); }

constexpr std::string_view name(Op op) { return traits(op).name; }
constexpr std::string_view name(Payload payload) { return traits(payload).name; }

/// Runs on one rank's own processors.
constexpr bool is_compute(Op op) { return detail::is_in(detail::compute_ops, op); }
/// Moves bytes between the memory of a rank's device and that of its host.
constexpr bool is_host_copy(Op op) { return detail::is_in(detail::host_ops, op); }
/// Has ends on one rank only: a computation or a host copy. All other ops send messages between
/// ranks.
constexpr bool is_local(Op op) { return detail::is_in(detail::compute_ops | detail::host_ops, op); }
/// Has exactly two ends.
constexpr bool is_point_to_point(Op op) { return detail::is_in(detail::pair_ops, op); }
/// Has two ends, each of which gives and takes.
constexpr bool goes_both_ways(Op op) { return is_point_to_point(op) && traits(op).first.takes != Part::nothing; }
/// Has a group of members.
constexpr bool is_collective(Op op) { return detail::is_in(detail::group_ops, op); }
/// Has a group of members, of which one is the root.
constexpr bool is_rooted(Op op) { return detail::is_in(detail::rooted_ops, op); }
/// Sends from each member to each other, with a size for each pair.
constexpr bool is_all_pairs(Op op) { return detail::is_in(detail::all_pairs_ops, op); }
/// Each member gives a part of its own, and takes the parts of all.
constexpr bool gathers(Op op) { return detail::is_in(detail::gather_ops, op); }
/// Each member takes its own part of what all give.
constexpr bool scatters(Op op) { return detail::is_in(detail::scatter_ops, op); }
/// Each member has a part of its own: its message names the parameters of each.
constexpr bool has_own_parts(Op op) { return detail::is_in(detail::gather_ops | detail::scatter_ops, op); }
/// Counts as work: compute that is not a drawn bubble.
constexpr bool is_work(Op op) { return detail::is_in(detail::work_ops, op); }
/// Is a stage's work for a microbatch: all work but updates.
constexpr bool is_stage_work(Op op) { return detail::is_in(detail::stage_ops, op); }
/// Leaves gradients of its stage's weights.
constexpr bool leaves_gradients(Op op) { return detail::is_in(detail::gradient_ops, op); }
/// Adds up what its ends give.
constexpr bool is_sum(Op op) { return detail::is_in(detail::summing_ops, op); }

/// Carries activations or their gradients: values per token, not per parameter.
constexpr bool is_of_tokens(Payload payload) { return traits(payload).numbers == Numbers::activations; }

}  // namespace tawpipe
