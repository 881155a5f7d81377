// Tests of frameworks/yaml_settings.hpp: names with their mappings, lines, references, and what is
// refused.
// Not: what the settings mean (yaml_job_test.cpp).
#include "tawpipe/frameworks/yaml_settings.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/refusal.hpp"

using namespace tawpipe;

namespace yaml_settings_test {

namespace {

/// "name=value,value@line name=..."
std::string told(std::string_view text, const std::vector<std::pair<std::string, std::string>>& environment = {}) {
  std::string all;
  for (const Setting& one : yaml_settings(text, "a.yaml", environment).settings) {
    all += concat(all.empty() ? "" : " ", one.name, "=", join(one.values, ","), "@", one.line);
    if (!one.unknown.empty()) all += concat("?", one.unknown);
  }
  return all;
}
std::string why(const std::string& text) {
  return support::refusal([&] { yaml_settings(text, "a.yaml"); });
}

}  // namespace

TEST_CASE("names have the mappings around them, and their lines") {
  CHECK(told("a: 1\nb:\n  c: x y\n  d: {e: 2.5, f: null}\n\n# g\nh: [1, 'two', [3]]\n") ==
        "a=1@1 b.c=x y@3 b.d.e=2.5@4 h=1,two,3@7");
  CHECK(told("---\na: \"b: c\"\nd: |\n  two\n  lines\n") == "a=b: c@2 d=two\nlines\n@3");
  CHECK(told("a:\nb: ~\nc: {}\nd: []\n") == "d=@4");
}

TEST_CASE("words of truth are words of truth, unless they are quoted") {
  CHECK(told("a: True\nb: yes\nc: OFF\nd: 'no'\ne: 1_000\nf: 1e-5\n") == "a=true@1 b=true@2 c=false@3 d=no@4 e=1000@5 f=1e-5@6");
}

TEST_CASE("references are followed, to settings and to variables") {
  const std::string text =
      "m:\n  s: 4096\n  p: ${.s}\nq: ${m.p}\nt: ${TP}\nu: ${TP:4}\nv: ${PP:-${TP:2}}x\nw: ${oc.env:PP,3}\nx: ${N:null}\n";
  CHECK(told(text) == "m.s=4096@2 m.p=4096@3 q=4096@4 t=${TP}@5?${TP} u=4@6 v=2x@7 w=3@8");
  CHECK(told(text, {{"TP", "8"}, {"PP", "1"}}) == "m.s=4096@2 m.p=4096@3 q=4096@4 t=8@5 u=8@6 v=1x@7 w=1@8");
  CHECK(told("a: ${b.c}\nb: {c: '${a.x}'}\n").find("?${a.x}") != std::string::npos);
  CHECK(told("a: {x: '${a.x}'}\n").find("?${a.x}") != std::string::npos);  // itself
  CHECK(told("a: ${multiply:${b.c}, 2}\n").find("?${multiply:") != std::string::npos);
}

TEST_CASE("an alias is what it stands for; many that repeat each other are refused") {
  CHECK(told("a: &x [1, 2]\nb: *x\nc: &m {d: 3}\ne: *m\n") == "a=1,2@1 b=1,2@2 c.d=3@3 e.d=3@3");
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += concat("a", i, ": &a", i, " [");
    for (int j = 0; j < 9; ++j) bomb += concat(j == 0 ? "" : ", ", "*a", i - 1);
    bomb += "]\n";
  }
  CHECK(why(bomb).find("aliases or lists make more than 20000 values") != std::string::npos);
  CHECK(why("a: &x {b: *x}\n").find("line 1") != std::string::npos);
}

TEST_CASE("what is not read is refused with its line") {
  CHECK(why("a: 1\nb: 2\na: 3\n") == "a.yaml, line 3: 'a' stands in line 1 already");
  CHECK(why("a:\n\tb: 1\n") == "a.yaml, line 2: a tab indents the line; YAML takes spaces only");
  CHECK(why("a: 1\n---\nb: 2\n") == "a.yaml, line 3: a second document begins; give one file for each");
  CHECK(why("a: [1, 2\nb: 3\n").find("a.yaml, line 2: not YAML: ") == 0);
  CHECK(why("x: &x {a: 1}\nb:\n  <<: *x\n") == "a.yaml, line 3: merge keys (<<) are not read; write out what they bring");
  CHECK(why("? [a]\n: b\n") == "a.yaml, line 1: a name is a list or a mapping; write a word");
  CHECK(why("- a\n").find("is no mapping of names to values") != std::string::npos);
  CHECK(why("").find("is no mapping of names to values") != std::string::npos);
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += "{a: ";
  CHECK(why("a: " + deep + "1" + std::string(40, '}')) == "a.yaml, line 1: mappings stand more than 32 deep in each other");
  CHECK(why("a: " + std::string(std::size_t{1} << 20, 'x')) == "a.yaml is larger than 1 MiB, the most that is read of a YAML");
}

TEST_CASE("YAML is known by its name, or by its first line where the name says nothing") {
  CHECK(is_yaml("", "a.yaml"));
  CHECK(is_yaml("", "b/a.yml"));
  CHECK(is_yaml("# x\n\nmodel_name_or_path: y\n", "-"));
  CHECK(is_yaml("MODEL_ARGS:\n  --a: 1\n", "x/config"));
  CHECK_FALSE(is_yaml("a: 1\n", "run.sh"));
  CHECK_FALSE(is_yaml("{\"a\": 1}", "-"));
  CHECK_FALSE(is_yaml("[training]\n", "-"));
  CHECK_FALSE(is_yaml("torchrun p.py --x 1\n", "-"));
}

TEST_CASE("written settings are read back") {
  const std::string text =
      yaml_text({{"a.b.c", "1"}, {"a.b.d", "x: y", true}, {"a.e", "true"}, {"f", "x y", true, true}}, {"a comment"});
  CHECK(text == "# a comment\na:\n  b:\n    c: 1\n    d: \"x: y\"\n  e: true\nf: [x, y]\n");
  CHECK(told(text) == "a.b.c=1@4 a.b.d=x: y@5 a.e=true@6 f=x,y@7");
}

}  // namespace yaml_settings_test
