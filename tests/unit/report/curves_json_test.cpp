// Tests of report/curves_json.hpp: what is written is read back, and a wrong file is refused by its
// key.
#include "tawpipe/report/curves_json.hpp"

#include <doctest/doctest.h>

#include <string>
#include <tuple>

#include "tawpipe/core/text_file.hpp"
#include "tawpipe/topology/devices.hpp"

using namespace tawpipe;

TEST_CASE("measured figures come back from their file") {
  const DeviceSpec device = device_named("H100-80G");
  MeasuredDevice measured{.name = "NVIDIA H100 80GB HBM3",
                          .kernel_gap = 1.5e-6,
                          .launch = 2e-6,
                          .to_host = 5e10,
                          .from_host = 4e10,
                          .kernels = {},
                          .software = "CUDA 12.8"};
  measured.kernels.push_back({{.kind = Kernel::Kind::traffic, .bytes = 1e9}, 4e-4});
  measured.kernels.push_back({{.kind = Kernel::Kind::product, .m = 8192, .n = 8192, .k = 8192}, 1.7e-3});
  const FittedCurves fitted = fit_curves(measured, device);
  const std::string text = curves_json(measured, device, fitted);
  CHECK(text.find("\"driver_name\": \"NVIDIA H100 80GB HBM3\"") != std::string::npos);
  const CurvesFile file = parse_curves_json(text, "gpu.json");
  CHECK(file.device == "H100-80G");
  CHECK(file.software == "CUDA 12.8");
  KernelCost cost;
  cost.changes = file.changes;
  CHECK(cost.changes.size() == 4);  // memory, products and their start, the gap
  CHECK(cost.curves(device) == fitted.curves);
}

TEST_CASE("figures that were measured here are read") {
  for (const auto& [folder, device, products] : {std::tuple{"h200", "H200-141G", 0.802}, {"h100", "H100-80G", 0.777}}) {
    const std::string path = concat(TAWPIPE_TEST_DATA "/../../bench/results/", folder, "/measured.json");
    const CurvesFile file = parse_curves_json(read_text_file(path, "the figures", 1), path);
    CHECK(file.device == device);
    KernelCost cost;
    cost.changes = file.changes;
    CHECK(cost.curves(device_named(device)).products == doctest::Approx(products).epsilon(0.001));
  }
}

TEST_CASE("a file that is none of measured figures is refused by its key") {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      parse_curves_json(text, "gpu.json");
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const auto file = [](const std::string& curves) {
    return R"({"measured_curves": 1, "device": "H100-80G", "software": "CUDA 12.8", "curves": )" + curves + "}";
  };
  CHECK(refusal(file("{\"products\": 0.5}")).empty());
  CHECK(refusal("{}").find("'measured_curves' is missing") != std::string::npos);
  CHECK(refusal(file("{\"product\": 0.5}")).find("products") != std::string::npos);
  CHECK(refusal(file("{\"products\": 1.5}")).find("a number above 0 and at most 1") != std::string::npos);
  CHECK(refusal(file("{\"memory\": 0}")).find("a number above zero") != std::string::npos);
  for (const char* key : {"device", "software"}) {
    std::string lacking = file("{\"products\": 0.5}");
    const auto at = lacking.find(key);
    lacking.replace(at, std::string{key}.size(), "driver_name");
    CAPTURE(key);
    CHECK(refusal(lacking).find("'" + std::string{key} + "' is missing") != std::string::npos);
  }
  CHECK(refusal("{\"measured_curves\": 2, \"curves\": {}}").find("measured_curves") != std::string::npos);
}
