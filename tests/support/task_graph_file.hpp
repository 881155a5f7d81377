// Reads task graphs of the text format "tg1": nodes of devices, each device with a port up and
// down, each node with one adapter out and in; computations and messages.
// Not: a format of the library.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "support/engine_graphs.hpp"

namespace support {

/// tg1, `platform nodes devices bandwidth latency bandwidth latency` (inside a node; between),
/// `tasks n`, and a line a task: `C device seconds n ids...` or
/// `X source destination bytes n ids...`.
inline GraphBuilder read_task_graph(std::istream& file) {
  std::string word;
  file >> word;
  REQUIRE(word == "tg1");
  int nodes = 0;
  int devices = 0;
  double inside = 0;
  double inside_latency = 0;
  double between = 0;
  double between_latency = 0;
  file >> word >> nodes >> devices >> inside >> inside_latency >> between >> between_latency;
  std::vector<double> capacities;
  for (int i = 0; i < 2 * nodes * devices; ++i) capacities.push_back(inside);
  const int first_adapter = 2 * nodes * devices;
  for (int i = 0; i < 2 * nodes; ++i) capacities.push_back(between);
  GraphBuilder graph{capacities};
  int tasks = 0;
  file >> word >> tasks;
  for (int t = 0; t < tasks; ++t) {
    int from = 0;
    int to = 0;
    double size = 0;
    int count = 0;
    file >> word >> from;
    if (word == "X") file >> to;
    file >> size >> count;
    std::vector<int> after(static_cast<std::size_t>(count));
    for (int& earlier : after) file >> earlier;
    if (word == "C") {
      graph.wait(size, after);
    } else if (from / devices == to / devices) {
      graph.flow(inside_latency, size, {2 * from, 2 * to + 1}, after);
    } else {
      graph.flow(between_latency, size, {first_adapter + 2 * (from / devices), first_adapter + 2 * (to / devices) + 1}, after);
    }
  }
  REQUIRE(!file.fail());
  return graph;
}

}  // namespace support
