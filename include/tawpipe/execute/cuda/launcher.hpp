// Which rank this process is, from the variables that torchrun, Slurm and MPI's launchers set.
// Not: the environment itself, which is passed in (a library reads none); how ranks find each other
// (execute/cuda/rendezvous.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::cuda {

/// A process's environment: name and value.
using Environment = std::map<std::string, std::string>;

/// Reads the format of a process's `environ`: texts "NAME=value", then null.
inline Environment read_environment(const char* const* texts) {
  Environment all;
  for (; *texts != nullptr; ++texts) {
    const std::string_view text{*texts};
    const auto equals = text.find('=');
    if (equals != std::string_view::npos) all[std::string{text.substr(0, equals)}] = text.substr(equals + 1);
  }
  return all;
}

/// The place of this process as set by a launcher.
struct ProcessPlace {
  int rank = 0;
  int ranks = 1;
  std::optional<int> local_rank;     ///< among the ranks of its host; if not set by the launcher, by the rendezvous
  std::string launcher;              ///< "torchrun", "Open MPI", "Slurm" or "PMI"; empty: none, one process by itself
  std::string master = "127.0.0.1";  ///< host name or address of rank 0
  std::uint16_t port = 29577;        ///< of rank 0's rendezvous
  std::string job;                   ///< the launcher's name of the run; processes of two runs do not mix
  std::string token;                 ///< TAWPIPE_TOKEN: a secret of the run's ranks; never shown
};

namespace detail {

/// The variable's value; empty if it is not set.
inline std::string_view variable(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string_view{} : std::string_view{found->second};
}

/// @throws InputError  unless the variable, if it is set, is a whole number from `least` to `most`.
inline std::optional<int> number(const Environment& environment, const std::string& name, int least, int most) {
  const std::string_view text = variable(environment, name);
  if (text.empty()) return std::nullopt;
  return parse_whole(text, concat("the environment's ", name), least, most);
}

/// The first host of Slurm's "node[03-07,9],login1" is "node03".
inline std::string first_host(std::string_view nodes) {
  const auto end = nodes.find_first_of(",[");
  std::string host{nodes.substr(0, end)};
  if (end == std::string_view::npos || nodes[end] == ',') return host;
  const std::string_view inside = nodes.substr(end + 1);
  host += inside.substr(0, inside.find_first_of(",-]"));
  const auto close = nodes.find(']');
  if (close == std::string_view::npos) return host;
  const std::string_view rest = nodes.substr(close + 1);
  return host + (rest.empty() || rest.front() == ',' ? std::string{} : first_host(rest));
}

/// The variables by which one launcher tells a process its place.
struct LauncherNames {
  const char* launcher;
  const char* rank;
  const char* ranks;
  const char* local_rank;
};

/// Slurm also sets its variables in a batch script, which runs once: only a step's processes are
/// ranks.
inline bool started_by(const LauncherNames& names, const Environment& environment) {
  if (variable(environment, names.rank).empty() && variable(environment, names.ranks).empty()) return false;
  if (std::string_view{names.launcher} != "Slurm") return true;
  return !variable(environment, "SLURM_STEP_ID").empty() || !variable(environment, "SLURM_STEPID").empty();
}

}  // namespace detail

/// Reads RANK and WORLD_SIZE (torchrun and most frameworks), otherwise OMPI_COMM_WORLD_*, SLURM_*,
/// PMI_*; with none of them this is a single process. MASTER_ADDR and MASTER_PORT give rank 0's
/// address under any launcher; without them it is the first host of Slurm's step, or this host if
/// all ranks are on one. torchrun's agent listens on MASTER_PORT itself
/// (TORCHELASTIC_USE_AGENT_STORE=True): then the next port is used. TAWPIPE_TOKEN, if set, is
/// required of every rank.
/// @throws InputError  for an invalid number, a rank without a world size, and several hosts
/// without MASTER_ADDR.
inline ProcessPlace place_of(const Environment& environment) {
  static constexpr detail::LauncherNames known[] = {
      {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
      {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
      {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
      {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
  };
  constexpr int max_ranks = 1 << 20;
  ProcessPlace place;
  for (const detail::LauncherNames& names : known) {
    if (!detail::started_by(names, environment)) continue;
    const auto ranks = detail::number(environment, names.ranks, 1, max_ranks);
    if (!ranks) throw InputError(concat(names.rank, " is set and ", names.ranks, " is not; set both"));
    const auto rank = detail::number(environment, names.rank, 0, *ranks - 1);
    if (!rank) throw InputError(concat(names.ranks, " is set and ", names.rank, " is not; set both"));
    place.launcher = names.launcher;
    place.rank = *rank;
    place.ranks = *ranks;
    place.local_rank = detail::number(environment, names.local_rank, 0, max_ranks);
    break;
  }
  if (place.launcher.empty()) return place;

  if (const auto port = detail::number(environment, "MASTER_PORT", 1, 65535)) {
    const bool taken = detail::variable(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True";
    place.port = static_cast<std::uint16_t>(!taken ? *port : *port < 65535 ? *port + 1 : *port - 1);
  }
  const std::string_view step_nodes = detail::variable(environment, "SLURM_STEP_NODELIST");
  if (const std::string_view master = detail::variable(environment, "MASTER_ADDR"); !master.empty()) {
    place.master = master;
  } else if (place.launcher == "Slurm" && !step_nodes.empty()) {
    place.master = detail::first_host(step_nodes);
  } else {
    const char* const local_ranks = place.launcher == "torchrun"   ? "LOCAL_WORLD_SIZE"
                                    : place.launcher == "Open MPI" ? "OMPI_COMM_WORLD_LOCAL_SIZE"
                                                                   : "MPI_LOCALNRANKS";
    if (place.ranks > 1 && detail::number(environment, local_ranks, 1, max_ranks) != place.ranks) {
      throw InputError(concat("MASTER_ADDR is not set, and ", place.launcher,
                              " does not say that all ranks are on one host; set it to the name or address of rank 0's host"));
    }
  }
  for (const char* const name : {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"}) {
    const std::string_view job = detail::variable(environment, name);
    if (!job.empty() && place.job.empty()) place.job = job;
  }
  place.token = detail::variable(environment, "TAWPIPE_TOKEN");
  return place;
}

/// The number of GPUs used by a process that no launcher has started, with a thread for each; a
/// single one has all ranks.
/// @param visible  GPUs that it sees, at least one. @param asked  0: as many as ranks
/// @param ranks    of the schedule; 0: a rank for each GPU
/// @throws InputError  if more are requested than are visible, or the numbers of ranks and GPUs
/// differ.
inline int gpus_without_launcher(int visible, std::int64_t asked, int ranks) {
  if (asked > visible) {
    throw InputError(concat(asked, " GPUs are asked for, and this process sees ", visible,
                            "; ask for fewer, or start a process for each by torchrun, srun or mpirun"));
  }
  if (asked == 0 && (visible == 1 || ranks == 0)) return visible;
  const auto used = asked == 0 ? ranks : static_cast<int>(asked);
  if (used == 1 || ranks == 0) return used;
  if (used > visible || used != ranks) {
    throw InputError(concat(ranks, " ranks do not have a GPU each: there are ", asked == 0 ? visible : used,
                            "; take as many ranks as GPUs, or 1 GPU, which then has all ranks"));
  }
  return used;
}

}  // namespace tawpipe::cuda
