// The speed tables against NCCL's own numbers.
// Not: who uses them.
#include "tawpipe/topology/link_speeds.hpp"

#include <doctest/doctest.h>

using namespace tawpipe;

TEST_CASE("NVLinks are as fast as NCCL assumes for each generation") {
  CHECK(nvlink_speed(60).value() == 18e9);
  CHECK(nvlink_speed(70).value() == 20e9);
  CHECK(nvlink_speed(80).value() == 20e9);
  CHECK(nvlink_speed(86).value() == 12e9);
  CHECK(nvlink_speed(90).value() == 20.6e9);
  CHECK(nvlink_speed(100).value() == 40.1e9);
  CHECK(nvlink_speed(120).value() == 40.1e9);
}

TEST_CASE("PCI Express x16 carries 12, 24 and 48 GB/s in generations 3, 4 and 5") {
  CHECK(pcie_speed(8).value() == doctest::Approx(12e9));
  CHECK(pcie_speed(16).value() == doctest::Approx(24e9));
  CHECK(pcie_speed(32).value() == doctest::Approx(48e9));
  // NCCL's table: 2.5 GT/s is 15, over 80, times one lane: 0.1875 GB/s. 5 GT/s x 16: 30 x 16 / 80 =
  // 6 GB/s.
  CHECK(pcie_speed(2.5, 1).value() == doctest::Approx(0.1875e9));
  CHECK(pcie_speed(5).value() == doctest::Approx(6e9));
  CHECK(pcie_speed(16, 8).value() == doctest::Approx(12e9));
}

TEST_CASE("the link between sockets depends on vendor and model") {
  CHECK(socket_speed("x86_64", "GenuineIntel", 6, 0x4f).value() == 6e9);   // Broadwell
  CHECK(socket_speed("x86_64", "GenuineIntel", 6, 85).value() == 10e9);    // Skylake
  CHECK(socket_speed("x86_64", "GenuineIntel", 6, 106).value() == 10e9);   // Ice Lake
  CHECK(socket_speed("x86_64", "GenuineIntel", 6, 143).value() == 22e9);   // Sapphire Rapids
  CHECK(socket_speed("x86_64", "GenuineIntel", 6, 0xcf).value() == 40e9);  // Emerald Rapids
  CHECK(socket_speed("x86_64", "AuthenticAMD", 23, 49).value() == 16e9);
  CHECK(socket_speed("x86_64", "  Shanghai  ", 7, 0x5b).value() == 9e9);
  CHECK(socket_speed("x86_64", "CentaurHauls", 6, 15).value() == 6e9);
  CHECK(socket_speed("arm64", "", 0, 0).value() == 6e9);
  CHECK(socket_speed("ppc64", "", 0, 0).value() == 32e9);
  CHECK(socket_speed("", "", 0, 0).value() == 10e9);
}

TEST_CASE("the latencies of a path add up to what NCCL assumes for one step") {
  constexpr LinkSpeeds speeds;
  // NVLink: out of one port, into another: 2 x 1.7 = 3.4 us. PCI below one switch: 2 x 2.85 = 5.7
  // us.
  CHECK(speeds.nvlink_latency * 2 == Duration{3'400'000});
  CHECK(speeds.device_pcie_latency * 2 == Duration{5'700'000});
  // Network: GPU to adapter, the adapter, adapter to GPU: 2.85 + 8.3 + 2.85 = 14 us.
  CHECK(speeds.device_pcie_latency * 2 + speeds.network_latency == Duration{14'000'000});
}

TEST_CASE("a generation's usual machine") {
  CHECK(link_speeds(90).pcie.value() == doctest::Approx(48e9));
  CHECK(link_speeds(90).network.value() == 50e9);
  CHECK(link_speeds(80).network.value() == 25e9);
  CHECK(link_speeds(70).pcie.value() == doctest::Approx(12e9));
  CHECK(link_speeds(120).socket.value() == 40e9);
}
