// Tests of report/chakra_file.hpp: traces as bytes, and bytes that are none.
// Not: what the nodes mean (import_test.cpp).
#include "tawpipe/report/chakra_file.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/random.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/report/chakra_import.hpp"

using namespace tawpipe;

namespace chakra_file_test {

std::string fault(std::string_view bytes) {
  try {
    parse_chakra(bytes, "x.0.et");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

ChakraNode random_node(support::Random& random) {
  ChakraNode node;
  node.id = random.next();
  node.name = std::string(static_cast<std::size_t>(random.between(0, 300)), static_cast<char>(random.between(0, 255)));
  node.type = random.between(-1, 12);
  for (int i = random.between(0, 5); i > 0; --i) node.data_deps.push_back(random.next() >> random.between(0, 63));
  for (int i = random.between(0, 5); i > 0; --i) node.control_deps.push_back(random.next() >> random.between(0, 63));
  node.start_us = random.next();
  node.duration_us = random.next() >> random.between(0, 63);
  node.inputs = random.between(0, 1) == 0 ? "" : "[1]";
  for (int i = random.between(0, 8); i > 0; --i) {
    const auto key = static_cast<ChakraKey>(random.between(1, chakra_keys - 1));
    if (key == ChakraKey::involved_dim) {
      node.set(key, std::string{"1011"});
    } else if (random.between(0, 1) == 0) {
      node.set(key, std::string{"text"});
    } else {
      node.set(key, static_cast<std::int64_t>(random.next()));
    }
  }
  return node;
}

TEST_CASE("what is written is read") {
  support::Random random{3};
  for (int round = 0; round < 300; ++round) {
    std::vector<ChakraNode> nodes;
    std::string bytes = chakra_head();
    for (int i = random.between(0, 6); i > 0; --i) {
      nodes.push_back(random_node(random));
      bytes += chakra_bytes(nodes.back());
    }
    CHECK(parse_chakra(bytes, "x").nodes == nodes);
  }
}

TEST_CASE("the bytes are those of Chakra's schema") {
  // Head {version (1): "0.0.4"}; node {id (1): 300, name (2): "ag", type (3): 7, data_deps (5,
  // packed): 1 2, duration (7): 9, attr (10): {name (1): "comm_type", int64_val (9): 2}, {name:
  // "is_cpu_op", bool_val (27): false}, one unknown, and one of a list of booleans (28)}.
  const std::string attributes =
      std::string{
          "\x52\x0d\x0a\x09"
          "comm_type"
          "\x48\x02"} +
      std::string{
          "\x52\x0e\x0a\x09"
          "is_cpu_op"
          "\xd8\x01\x00",
          16} +
      std::string{
          "\x52\x07\x0a\x03"
          "xyz"
          "\x68\x05"} +
      std::string{
          "\x52\x15\x0a\x0c"
          "involved_dim"
          "\xe2\x01\x04\x0a\x02\x01\x00",
          23};
  const std::string node =
      std::string{
          "\x08\xac\x02\x12\x02"
          "ag"
          "\x18\x07\x2a\x02\x01\x02\x38\x09"} +
      attributes;
  const std::string bytes =
      std::string{
          "\x07\x0a\x05"
          "0.0.4"} +
      static_cast<char>(node.size()) + node;
  const ChakraRank rank = parse_chakra(bytes, "x");
  REQUIRE(rank.nodes.size() == 1);
  CHECK(rank.nodes[0].id == 300);
  CHECK(rank.nodes[0].name == "ag");
  CHECK(rank.nodes[0].is(ChakraType::collective));
  CHECK(rank.nodes[0].data_deps == std::vector<std::uint64_t>{1, 2});
  CHECK(rank.nodes[0].duration_us == 9);
  CHECK(rank.nodes[0].number(ChakraKey::comm_type) == 2);
  CHECK(rank.nodes[0].number(ChakraKey::is_cpu_op) == 0);
  CHECK(rank.nodes[0].text(ChakraKey::involved_dim) == "10");
  CHECK(rank.nodes[0].attributes.size() == 3);
}

TEST_CASE("bytes that are no trace are refused in one line") {
  const auto says = [](const std::string& bytes, const std::string& words) {
    const std::string text = fault(bytes);
    CHECK_MESSAGE(text.find(words) != std::string::npos, text);
    CHECK(text.find('\n') == std::string::npos);
  };
  const std::string head = chakra_head();
  ChakraNode node;
  node.id = 5;
  node.name = "forward";
  const std::string whole = head + chakra_bytes(node);
  says("", "x.0.et is empty");
  says(head + "\x80\x80", "node 1 of the file, at byte 8: its length is cut off");
  says(head + std::string(10, '\xff'), "its length is cut off");
  says(whole.substr(0, whole.size() - 1), "it should be");
  says(head + "\xff\xff\xff\xff\x07" + "abc", "it should be 2147483647 bytes long and the file has 3 more");
  says(head + "\x02\x08", "it should be 2 bytes long and the file has 1 more");
  says(head + "\x02\x08\x80", "its bytes are not a message");
  says("{\"tasks\": []}", "its head, at byte 0");
  CHECK(fault(whole) == "accepted");
  CHECK(fault(head) == "accepted");
}

TEST_CASE("damaged traces end in an error or in a schedule, never otherwise") {
  support::Random random{11};
  ChakraNode first;
  first.id = 1;
  first.type = 4;
  first.duration_us = 5;
  ChakraNode second = first;
  second.id = 2;
  second.type = 7;
  second.data_deps = {1};
  second.set(ChakraKey::comm_type, 0);
  second.set(ChakraKey::comm_size, 100);
  second.set(ChakraKey::op, std::string{"all_reduce"});
  const std::string whole = chakra_head() + chakra_bytes(first) + chakra_bytes(second);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = whole;
    for (int i = random.between(1, 4); i > 0; --i) {
      bytes[static_cast<std::size_t>(random.between(0, static_cast<int>(bytes.size()) - 1))] =
          static_cast<char>(random.between(0, 255));
    }
    try {
      ChakraTrace trace;
      trace.ranks.push_back(parse_chakra(bytes, "x"));
      chakra_calls(trace);
      import_chakra(trace);
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

}  // namespace chakra_file_test
