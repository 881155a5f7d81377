// The progress line: what is written, how often, and that it leaves nothing behind.
// Not: a terminal.
#include "tawpipe/report/progress.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <utility>

using namespace tawpipe;

namespace {

struct Capture {
  std::string* out;
  void operator()(std::string_view text) const { *out += text; }
};

int count(const std::string& text, char wanted) {
  int found = 0;
  for (const char c : text) found += c == wanted ? 1 : 0;
  return found;
}

}  // namespace

TEST_CASE("a progress line is drawn over itself and cleared at the end") {
  std::string out;
  {
    Progress progress{{.label = "plans", .total = 4, .enabled = true}, Capture{&out}};
    CHECK(out == "\rplans                0%  0/4");
    out.clear();
    progress.advance();
    CHECK(out == "\rplans  ██▌          25%  1/4");
    out.clear();
    progress.advance(3);
    CHECK(out == "\rplans  ██████████  100%  4/4");
    CHECK(progress.done() == 4);
    out.clear();
  }
  CHECK(out == "\r" + std::string(28, ' ') + "\r");
}

TEST_CASE("a note stands at the end of the line, and a new one is drawn at once") {
  std::string out;
  Progress progress{{.label = "plans", .total = 4, .enabled = true}, Capture{&out}};
  out.clear();
  progress.note("best 5 s");
  CHECK(out == "\rplans                0%  0/4  best 5 s");
  out.clear();
  progress.note("best 5 s");
  CHECK(out.empty());
  progress.note("best 4 s");
  CHECK(out == "\rplans                0%  0/4  best 4 s");
}

TEST_CASE("a progress line in ASCII") {
  std::string out;
  Progress progress{{.label = "plans", .total = 2, .enabled = true, .glyphs = Glyphs::ascii}, Capture{&out}};
  out.clear();
  progress.advance();
  CHECK(out == "\rplans  #####        50%  1/2");
}

TEST_CASE("a million steps draw a hundred lines") {
  std::string out;
  Progress progress{{.label = "tasks", .total = 1'000'000, .enabled = true}, Capture{&out}};
  for (int i = 0; i < 1'000'000; ++i) progress.advance();
  CHECK(count(out, '\r') == 101);  // the first at 0
}

TEST_CASE("the caller may say how often") {
  std::string out;
  Progress progress{{.label = "tasks", .total = 100, .enabled = true, .every = 50}, Capture{&out}};
  for (int i = 0; i < 100; ++i) progress.advance();
  CHECK(count(out, '\r') == 3);  // at 0, 50, 100
}

TEST_CASE("an unknown total shows the count alone") {
  std::string out;
  Progress progress{{.label = "tasks", .enabled = true, .every = 1000}, Capture{&out}};
  progress.advance(13629);
  CHECK(out == "\rtasks  0\rtasks  13,629");
}

TEST_CASE("a shorter line covers the longer one before") {
  std::string out;
  Progress progress{{.label = "left", .enabled = true}, Capture{&out}};
  progress.advance(1000);
  out.clear();
  progress.advance(-500);  // draws nothing: it is before the drawn position
  CHECK(out.empty());
  progress.finish();
  CHECK(out == "\r" + std::string(11, ' ') + "\r");
  progress.finish();
  progress.advance(5000);
  CHECK(out == "\r" + std::string(11, ' ') + "\r");
}

TEST_CASE("without a terminal nothing is written") {
  std::string out;
  {
    Progress progress{{.label = "plans", .total = 10}, Capture{&out}};
    for (int i = 0; i < 10; ++i) progress.advance();
    CHECK(progress.done() == 10);
  }
  CHECK(out.empty());
}

TEST_CASE("a line stays within the terminal, or it could not be drawn over") {
  std::string out;
  Progress progress{{.label = "a very long\nlabel", .total = 10, .enabled = true, .max_width = 12}, Capture{&out}};
  CHECK(out == "\ra very lon…");  // 11 columns of 12
}

TEST_CASE("in a log there is a line each time that so many seconds are over") {
  static std::chrono::steady_clock::time_point now{};
  std::string out;
  {
    const auto clock = []() { return now; };
    Progress progress{{.label = "plans", .total = 4000, .seconds_a_line = 10, .clock = clock}, Capture{&out}};
    progress.advance(10);
    progress.note("best 2 s");
    now += std::chrono::milliseconds{9999};
    progress.advance();
    CHECK(out.empty());
    now += std::chrono::milliseconds{1};
    progress.advance(989);
    CHECK(out == "plans: 1,000 of 4,000, 25%, best 2 s\n");
    out.clear();
    progress.advance(3000);
    CHECK(out.empty());
    now += std::chrono::seconds{25};
    progress.advance(0);
    progress.advance(0);
    CHECK(out == "plans: 4,000 of 4,000, 100%, best 2 s\n");
    out.clear();
  }
  CHECK(out.empty());
}
