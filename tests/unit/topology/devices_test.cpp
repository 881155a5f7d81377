// Tests of topology/devices.hpp: a GPU by what its driver calls it.
#include "tawpipe/topology/devices.hpp"

#include <doctest/doctest.h>

#include <string>

namespace {

std::string found(const std::string& name, double gib = 0) {
  const tawpipe::KnownDevice* const device = tawpipe::device_of_driver(name, static_cast<std::int64_t>(gib * 1073741824.0));
  return device == nullptr ? "" : std::string{device->name};
}

}  // namespace

TEST_CASE("drivers' names are those of the table") {
  CHECK(found("NVIDIA H100 80GB HBM3") == "H100-80G");
  CHECK(found("NVIDIA A100-SXM4-40GB") == "A100-40G");
  CHECK(found("NVIDIA A100-SXM4-80GB") == "A100-80G");
  CHECK(found("NVIDIA A800-SXM4-80GB") == "A800-80G");
  CHECK(found("NVIDIA H200") == "H200-141G");
  CHECK(found("NVIDIA B200") == "B200-180G");
  CHECK(found("NVIDIA L40S") == "L40S-48G");
  CHECK(found("NVIDIA GeForce RTX 4090") == "RTX4090-24G");
  CHECK(found("Tesla V100-SXM2-32GB") == "V100-32G");
  CHECK(found("Tesla T4") == "T4-16G");
  CHECK(found("NVIDIA H100", 93.6) == "H100-96G");
}

TEST_CASE("people's names are those of the table") {
  const auto called = [](const char* name) { return tawpipe::known_device(name).name; };
  CHECK(called("H100") == "H100-80G");
  CHECK(called("h100-80g") == "H100-80G");
  CHECK(called("h100-96G") == "H100-96G");
  CHECK(called("A100") == "A100-80G");
  CHECK(called("a100 40gb") == "A100-40G");
  CHECK(called("NVIDIA H100 80GB HBM3") == "H100-80G");
  CHECK(called("4090") == "RTX4090-24G");
  CHECK(called("RTX 4090") == "RTX4090-24G");
  CHECK(called("rtx5090") == "RTX5090-32G");
  CHECK(called("B300") == "B300-270G");
  CHECK(called("h20") == "H20-96G");
  CHECK(called("L4") == "L4-24G");
  CHECK_THROWS_AS(called("H1000"), tawpipe::InputError);
  CHECK_THROWS_AS(called("H100 PCIe"), tawpipe::InputError);
}

TEST_CASE("what only resembles one is not taken for it") {
  for (const char* name : {"", "NVIDIA A16", "NVIDIA A1000", "NVIDIA L40", "NVIDIA T400", "NVIDIA H100 PCIe", "NVIDIA H100 NVL",
                           "NVIDIA RTX 4090 Laptop GPU", "AMD Instinct MI300X"}) {
    CAPTURE(name);
    CHECK(found(name).empty());
  }
}

TEST_CASE("a board's power lies with its generation's") {
  for (const tawpipe::KnownDevice& device : tawpipe::known_devices()) {
    CAPTURE(device.name);
    CHECK(device.watts >= 70);
    CHECK(device.watts <= 1400);
    CHECK(device.teraflops / device.watts < 2.3);  // 2250 / 1000 of B200 is the most of all
  }
  CHECK(tawpipe::known_device("H100-80G").watts == 700);
  CHECK(tawpipe::known_device("A100-80G").watts == 400);
}
