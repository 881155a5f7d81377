#include "tawpipe/execute/cuda/launcher.hpp"

#include <doctest/doctest.h>

using namespace tawpipe;
using cuda::Environment;
using cuda::place_of;
using cuda::ProcessPlace;

TEST_CASE("a process that no launcher started is the only rank") {
  const ProcessPlace place = place_of({{"HOME", "/root"}, {"MASTER_ADDR", "left-over"}});
  CHECK(place.rank == 0);
  CHECK(place.ranks == 1);
  CHECK(place.launcher.empty());
}

TEST_CASE("torchrun's variables are read, and its own port is left alone") {
  Environment environment{{"RANK", "5"},
                          {"WORLD_SIZE", "16"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node7"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "third"}};
  ProcessPlace place = place_of(environment);
  CHECK(place.launcher == "torchrun");
  CHECK(place.rank == 5);
  CHECK(place.ranks == 16);
  CHECK(place.local_rank == 1);
  CHECK(place.master == "node7");
  CHECK(place.port == 29500);
  CHECK(place.job == "third");
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // the agent listens on 29500
  CHECK(place_of(environment).port == 29501);
  environment["MASTER_PORT"] = "65535";
  CHECK(place_of(environment).port == 65534);
}

TEST_CASE("RANK comes before what mpirun or Slurm say") {
  const ProcessPlace place = place_of(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  CHECK(place.launcher == "torchrun");
  CHECK(place.rank == 1);
  CHECK_FALSE(place.local_rank.has_value());
}

TEST_CASE("mpirun on one host needs no MASTER_ADDR, on several it does") {
  Environment environment{{"OMPI_COMM_WORLD_RANK", "2"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  CHECK(place_of(environment).master == "127.0.0.1");
  CHECK(place_of(environment).launcher == "Open MPI");
  environment["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  CHECK_THROWS_WITH_AS(place_of(environment),
                       "MASTER_ADDR is not set, and Open MPI does not say that all ranks are on one host; set it to the name or "
                       "address of rank 0's host",
                       InputError);
  environment["MASTER_ADDR"] = "10.0.0.1";
  CHECK(place_of(environment).master == "10.0.0.1");
}

TEST_CASE("the processes of a Slurm step are ranks, its batch script is not") {
  Environment environment{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "4711"}};
  CHECK(place_of(environment).launcher.empty());
  environment["SLURM_STEP_ID"] = "0";
  environment["SLURM_PROCID"] = "6";
  environment["SLURM_LOCALID"] = "2";
  environment["SLURM_STEP_NODELIST"] = "gpu[012-013]";
  const ProcessPlace place = place_of(environment);
  CHECK(place.launcher == "Slurm");
  CHECK(place.rank == 6);
  CHECK(place.ranks == 8);
  CHECK(place.local_rank == 2);
  CHECK(place.master == "gpu012");
  CHECK(place.job == "4711");
}

TEST_CASE("the first host of Slurm's lists") {
  CHECK(cuda::detail::first_host("login1") == "login1");
  CHECK(cuda::detail::first_host("a1,b2") == "a1");
  CHECK(cuda::detail::first_host("node[03-07,9],login1") == "node03");
  CHECK(cuda::detail::first_host("rack[1-2]n[05,07]-ib") == "rack1n05-ib");
}

TEST_CASE("PMI's variables are read") {
  const ProcessPlace place = place_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  CHECK(place.launcher == "PMI");
  CHECK(place.rank == 1);
  CHECK(place.local_rank == 1);
}

TEST_CASE("what cannot be used is named with what would be right") {
  CHECK_THROWS_WITH_AS(place_of({{"RANK", "1"}}), "RANK is set and WORLD_SIZE is not; set both", InputError);
  CHECK_THROWS_WITH_AS(place_of({{"WORLD_SIZE", "2"}}), "WORLD_SIZE is set and RANK is not; set both", InputError);
  CHECK_THROWS_WITH_AS(place_of({{"RANK", "4"}, {"WORLD_SIZE", "4"}}),
                       "the environment's RANK must be a whole number from 0 to 3, not '4'", InputError);
  CHECK_THROWS_WITH_AS(place_of({{"RANK", "0x"}, {"WORLD_SIZE", "4"}}),
                       "the environment's RANK must be a whole number from 0 to 3, not '0x'", InputError);
  CHECK_THROWS_WITH_AS(place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "70000"}}),
                       "the environment's MASTER_PORT must be a whole number from 1 to 65535, not '70000'", InputError);
}

TEST_CASE("the run's token is read, with a launcher") {
  CHECK(place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"TAWPIPE_TOKEN", "sesame"}}).token == "sesame");
  CHECK(place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).token.empty());
}

TEST_CASE("a process's environment is read as it stands") {
  const char* const texts[] = {"RANK=3", "EMPTY=", "no value", "A=b=c", nullptr};
  const Environment expected{{"RANK", "3"}, {"EMPTY", ""}, {"A", "b=c"}};
  CHECK(tawpipe::cuda::read_environment(texts) == expected);
}

TEST_CASE("without a launcher a process takes a GPU for each rank, or one for all") {
  using cuda::gpus_without_launcher;
  CHECK(gpus_without_launcher(1, 0, 0) == 1);
  CHECK(gpus_without_launcher(1, 0, 24) == 1);  // virtual ranks
  CHECK(gpus_without_launcher(8, 0, 0) == 8);
  CHECK(gpus_without_launcher(8, 0, 1) == 1);
  CHECK(gpus_without_launcher(8, 0, 4) == 4);
  CHECK(gpus_without_launcher(8, 4, 0) == 4);
  CHECK(gpus_without_launcher(8, 4, 4) == 4);
  CHECK(gpus_without_launcher(8, 1, 24) == 1);  // virtual ranks
  CHECK_THROWS_WITH_AS(gpus_without_launcher(8, 0, 24), doctest::Contains("24 ranks do not have a GPU each: there are 8"),
                       InputError);
  CHECK_THROWS_WITH_AS(gpus_without_launcher(8, 4, 8), doctest::Contains("8 ranks do not have a GPU each: there are 4"),
                       InputError);
  CHECK_THROWS_WITH_AS(gpus_without_launcher(2, 4, 0), doctest::Contains("4 GPUs are asked for, and this process sees 2"),
                       InputError);
}
