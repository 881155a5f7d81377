// Tests of frameworks/detail/shell_conditions.hpp: which commands run.
// Not: whole scripts (shell_script_test.cpp).
#include "tawpipe/frameworks/detail/shell_conditions.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/shell.hpp"

using namespace tawpipe;

namespace shell_conditions_test {

using support::flags_of;
using support::has;
using support::listed;
using support::notes_of;
using support::refusal;

TEST_CASE("an assignment after && counts if the test before it holds") {
  const auto with = [](const std::string& before) {
    return listed(flags_of(concat("TP=4; ARGS=--bf16\n", before, "\npretrain_gpt.py --num-layers 4 $ARGS\n")));
  };
  const std::string without = "3: --num-layers 4\n1: --bf16\n";
  const std::string more = "3: --num-layers 4\n1: --bf16\n2: --swiglu\n";
  for (const char* test :
       {"test $TP -gt 1", "(( TP > 1 ))", "((TP>=4 && TP<8))", "[[ $TP -gt 1 && -n $TP ]]", "[ $TP = 4 ]",
        "[[ $TP == 8 || ( $TP == 4 && ! -z x ) ]]", "! (( TP == 8 ))", "mkdir -p out && cd out", "(( TP % 2 == 0 ))"}) {
    CAPTURE(std::string{test});
    CHECK(with(concat(test, " && ARGS=\"$ARGS --swiglu\"")) == more);
    if (!has(test, "mkdir")) CHECK(with(concat(test, " || ARGS=\"$ARGS --swiglu\"")) == without);
  }
  for (const char* test : {"test $TP -gt 8", "(( TP > 8 ))", "[[ $TP -gt 8 && -n $X ]]", "false", "[[ ! $TP == 4 ]]"}) {
    CAPTURE(std::string{test});
    CHECK(with(concat(test, " && ARGS=\"$ARGS --swiglu\"")) == without);
    CHECK(with(concat("if ", test, "; then ARGS=\"$ARGS --swiglu\"; fi")) == without);
  }
  const auto undecided = [](const std::string& test, const char* flag) {
    return concat("ARGS=--bf16\n", test, " && ARGS=\"$ARGS ", flag, "\"\npretrain_gpt.py --num-layers 4 $ARGS\n");
  };
  for (const char* test : {"grep -q H200 /etc/gpu", "(( X > 8 ))", "test -f x", "python check.py"}) {
    CAPTURE(std::string{test});
    CHECK(refusal(undecided(test, "--swiglu")) ==
          "run.sh, line 2: only a run could tell whether this holds, and it decides --swiglu; give a file with one of its "
          "branches");
    CHECK(notes_of(undecided(test, "--save out")).empty());
  }
  CHECK(notes_of(undecided("[[ -n $X && $TP == 4 ]]", "--swiglu")) ==
        "run.sh, line 2: $X is not set, and taken as empty; it decides --swiglu (--env)");
  CHECK(notes_of(undecided("[ $1 = fp8 ]", "--swiglu")) ==
        "run.sh, line 2: $1 is not set, and taken as empty; it decides --swiglu (--args)");
}

TEST_CASE("case with a value that the script sets") {
  const auto layers = [](const std::string& size) {
    return listed(flags_of(concat("SIZE=", size,
                                  "\ncase $SIZE in\n  8B|7B) LAYERS=32 ;;\n  (70B)\n    LAYERS=80\n    ;;\n  *) LAYERS=4; esac\n"
                                  "p.py --num-layers $LAYERS\n")));
  };
  CHECK(layers("8B") == "8: --num-layers 32\n");
  CHECK(layers("7B") == "8: --num-layers 32\n");
  CHECK(layers("70B") == "8: --num-layers 80\n");
  CHECK(layers("x") == "8: --num-layers 4\n");
  const std::string by_size = "case $1 in\n8B) LAYERS=32 ;;\n*) LAYERS=4 ;;\nesac\np.py --num-layers $LAYERS\n";
  CHECK(has(notes_of(by_size), "line 1: $1 is not set, and taken as empty; it decides --num-layers (--args)"));
  CHECK(listed(shell_settings(megatron_table(), by_size, "run.sh", {.arguments = {"8B"}})) == "5: --num-layers 32\n");
  CHECK(has(refusal("S=a\ncase $S in a) L=3 ;& b) L=4 ;; esac\np.py --num-layers $L\n"), "set under a condition in line 2"));
  CHECK(listed(flags_of("S=a\ncase $S in b) if x; then L=1; fi;; a) L=3;; esac; L2=$L\np.py --num-layers $L2\n")) ==
        "3: --num-layers 3\n");
}

TEST_CASE("what a branch, a loop or a function sets") {
  CHECK(listed(flags_of("if false; then L=1\nelif (( 2 > 1 )); then L=2\nelse L=3; fi\np.py --num-layers $L\n")) ==
        "4: --num-layers 2\n");
  CHECK(has(refusal("L=1\nfor L in 2 3; do x; done\np.py --num-layers $L\n"), "$L, set"));
  CHECK(has(refusal("L=1\nwhile x; do L=2; done\np.py --num-layers $L\n"), "$L, set under a condition in line 2"));
  CHECK(listed(flags_of("L=1\nwhile [ -n \"$1\" ]; do L=2; shift; done\np.py --num-layers $L\n")) == "3: --num-layers 1\n");
  CHECK(has(refusal("L=1\nread L < x\np.py --num-layers $L\n"), "$L, set by read in line 2,"));
  CHECK(has(refusal("L=1\n((L++))\np.py --num-layers $L\n"), "$L, set by arithmetic in line 2,"));
  CHECK(has(refusal("L=1\nlet L=2*2\np.py --num-layers $L\n"), "$L, set by let in line 2,"));
  CHECK(has(refusal("L=(1 2)\nL[0]=4\np.py --num-layers $L\n"), "an element of which is set in line 2"));
}

TEST_CASE("a test that does not end is named") {
  CHECK(refusal("[[ a == b\np.py --num-layers 4\n") == "run.sh, line 1: [[ has no end");
  CHECK(has(refusal("((a\np.py --num-layers 4\n"), "(( has no end"));
}

}  // namespace shell_conditions_test
