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
  CHECK(found("NVIDIA H100 PCIe") == "H100-PCIE-80G");
  CHECK(found("NVIDIA H100 NVL") == "H100-NVL-94G");
  CHECK(found("NVIDIA H200 NVL", 139.8) == "H200-NVL-141G");
  CHECK(found("NVIDIA RTX PRO 6000 Blackwell Server Edition") == "RTXPRO6000-SERVER-96G");
  CHECK(found("NVIDIA RTX PRO 6000 Blackwell Workstation Edition") == "RTXPRO6000-96G");
  CHECK(found("NVIDIA RTX 6000 Ada Generation") == "RTX6000ADA-48G");
  CHECK(found("NVIDIA RTX A6000") == "A6000-48G");
  CHECK(found("NVIDIA A40") == "A40-48G");
  CHECK(found("NVIDIA A30") == "A30-24G");
  CHECK(found("AMD Instinct MI250X") == "MI250X-64G");
  CHECK(found("AMD Instinct MI300X OAM") == "MI300X-192G");
  CHECK(found("AMD Instinct MI325X OAM") == "MI325X-256G");
  CHECK(found("AMD Instinct MI355X OAM") == "MI355X-288G");
  CHECK(found("HL-325L") == "Gaudi3-128G");
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
  CHECK(called("h100 pcie") == "H100-PCIE-80G");
  CHECK(called("H100-NVL") == "H100-NVL-94G");
  CHECK(called("H200 NVL 141GB") == "H200-NVL-141G");
  CHECK(called("mi300x") == "MI300X-192G");
  CHECK(called("Gaudi 3") == "Gaudi3-128G");
  CHECK(called("RTX PRO 6000") == "RTXPRO6000-96G");
  CHECK(called("rtx-pro-6000-server") == "RTXPRO6000-SERVER-96G");
  CHECK_THROWS_AS(called("H800 PCIe"), tawpipe::InputError);
}

TEST_CASE("what only resembles one is not taken for it") {
  for (const char* name : {"", "NVIDIA A16", "NVIDIA A1000", "NVIDIA L40", "NVIDIA T400", "NVIDIA H800 PCIe", "Quadro RTX 6000",
                           "NVIDIA RTX 4090 Laptop GPU", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
                           "AMD Instinct MI250", "AMD Radeon RX 7900 XTX"}) {
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

TEST_CASE("devices of other vendors have no compute capability, and links of their own") {
  int others = 0;
  for (const tawpipe::KnownDevice& device : tawpipe::known_devices()) {
    CAPTURE(device.name);
    const bool mesh = device.peers == tawpipe::Peers::xgmi || device.peers == tawpipe::Peers::roce;
    CHECK((device.sm == 0) == mesh);
    if (!mesh) continue;
    ++others;
    CHECK(device.links % 7 == 0);
    CHECK(tawpipe::usual_nvlinks(device) == 0);
  }
  CHECK(others == 5);
  // 48 GB/s of RCCL; a third of 21 ports of 200 Gb/s is 3 x 25.
  CHECK(tawpipe::link_speeds(tawpipe::known_device("MI300X-192G")).nvlink.value() == 48e9);
  CHECK(tawpipe::link_speeds(tawpipe::known_device("MI250X-64G")).nvlink.value() == 36e9);
  CHECK(tawpipe::link_speeds(tawpipe::known_device("MI250X-64G")).pcie.value() == tawpipe::link_speeds(80).pcie.value());
  CHECK(tawpipe::link_speeds(tawpipe::known_device("Gaudi3-128G")).nvlink.value() == 25e9);
  CHECK(tawpipe::link_speeds(tawpipe::known_device("H100-80G")).network.value() == tawpipe::link_speeds(90).network.value());
}
