// Tests of frameworks/shell_settings.hpp: of which command the flags are.
// Not: its words (shell_script_test.cpp).
#include "tawpipe/frameworks/shell_settings.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/shell.hpp"

using namespace tawpipe;

namespace shell_settings_test {

using support::flags_of;
using support::has;
using support::listed;
using support::notes_of;
using support::refusal;

TEST_CASE("what may hold flags after a flag that takes no value is refused, or noted if nothing sets it") {
  for (const std::string_view flag : split(detail::megatron_skipped_switches, ' ')) {
    CAPTURE(flag);
    CHECK(
        has(refusal(concat("p.py --num-layers 4 ", flag, " $(extra)\n")), "$(extra) is not set in this file and may hold flags"));
    CHECK(notes_of(concat("p.py --num-layers 4 ", flag, " $EXTRA\n")) == "run.sh: not set, and taken as empty: $EXTRA (--env)");
  }
  CHECK(refusal("p.py --num-layers 4 --save $OUT --use-mcore-models\n").empty());
}

TEST_CASE("the line of an unset variable is that of its word") {
  CHECK(has(refusal("p.py \\\n --num-layers \\\n  $LAYERS\n"), "line 3: --num-layers: $LAYERS is not set"));
  CHECK(has(refusal("p.py \\\n --num-layers 4 --profile \\\n  $(extra)\n"), "line 3: $(extra) is not set"));
}

TEST_CASE("the commands in the text of sh -c and eval") {
  CHECK(listed(flags_of("O=\"--bf16\nB\"\nsrun -l sh -c \"cd x && python p.py \\\n  --num-layers 4 ${O}\"\n")) ==
        "4: --num-layers 4\n1: --bf16 B\n");
  CHECK(listed(flags_of("srun -N2 bash -lc '\n python p.py \\\n --num-layers 4 \\\n --bf16'\n")) ==
        "3: --num-layers 4\n4: --bf16\n");
  CHECK(listed(flags_of("O=\"--num-layers 4 \\\n --bf16\"\nCMD=\"torchrun $D p.py $O\"\necho $CMD\neval $CMD\n")) ==
        "1: --num-layers 4\n2: --bf16\n");
  CHECK(listed(flags_of("eval \"L=4; M='--bf16'\"\np.py --num-layers $L $M\n")) == "2: --num-layers 4\n1: --bf16\n");
  CHECK(has(refusal("sh -c 'p.py --num-layers $L'\n"), "--num-layers: $L is not set"));
  CHECK(has(notes_of("O=\"--num-layers 4 --bf16\"\nsh -c \"p.py $O $X\"\n"), "taken as empty: $X"));
  // Arrays and texts that no command uses are not read.
  CHECK(listed(flags_of("OLD=\"--fp16\"\nNEW=\"--num-layers 4\"\nsh -c \"p.py ${NEW}\"\n")) == "2: --num-layers 4\n");
  CHECK(refusal("OLD=(--num-layers 4)\nsbatch run.sh\n").find("run.sh: no command with Megatron-LM flags") == 0);
  CHECK(listed(flags_of("A=\"--num-layers 4\"\nB=\"$A --bf16\"\n")) == "1: --num-layers 4\n2: --bf16\n");
}

TEST_CASE("a program all of whose words are unknown is named") {
  CHECK(has(refusal("read -r ARGS < flags\ntorchrun p.py $ARGS\n"),
            "$ARGS, set by read in line 1, is not set in this file and may hold flags"));
}

TEST_CASE("what is printed or looped over is no command of its own") {
  CHECK(listed(flags_of("echo --num-layers 9\nprintf '%s' --num-layers\nfor f in --bf16 --num-layers; do x; done\n"
                        "p.py --num-layers 4\n")) == "4: --num-layers 4\n");
}

TEST_CASE("the processes that torchrun starts") {
  const auto processes = [](const std::string& launch) { return flags_of(launch + " p.py --num-layers 4\n").processes; };
  CHECK(processes("torchrun --nproc_per_node 8 --nnodes 16") == 128);
  CHECK(processes("N=2; torchrun --nproc-per-node=4 --nnodes=$N") == 8);
  for (const char* launch : {"torchrun --nproc_per_node 8", "torchrun --nproc_per_node $G --nnodes 2", "torchrun --nnodes 2 ",
                             "torchrun --nproc_per_node gpu --nnodes 1:4", "python"}) {
    CAPTURE(std::string{launch});
    CHECK(processes(launch) == 0);
  }
}

}  // namespace shell_settings_test
