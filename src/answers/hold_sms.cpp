// --hold-sms: the SMs that communications hold.
// Not: their effect (simulate/held_sms.hpp).
#include <string>
#include <vector>

#include "tawpipe/answers/job_question.hpp"
#include "tawpipe/answers/read_text.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/held_speeds.hpp"

namespace tawpipe::inline v0::answers {

namespace {

constexpr const char* example = "ctas=8,collective-ctas=16";

int parse_count(const std::string& key, const std::string& text, int least) {
  const auto count = to_number<int>(text);
  if (!count || *count < least || *count > max_device_sms) {
    throw InputError(
        concat("--hold-sms: ", key, "=", one_line(text), " must be a whole number from ", least, " to ", max_device_sms));
  }
  return *count;
}

bool parse_switch(const std::string& key, const std::string& text) {
  if (text != "on" && text != "off") throw InputError(concat("--hold-sms: ", key, "=", one_line(text), " must be on or off"));
  return text == "on";
}

ZeroCta parse_reach(const std::string& key, const std::string& text) {
  if (text == "off") return ZeroCta::off;
  if (text == "node") return ZeroCta::node;
  if (text == "network") return ZeroCta::network;
  throw InputError(concat("--hold-sms: ", key, "=", one_line(text), " must be off, node or network"));
}

}  // namespace

HeldSms parse_hold_sms(const std::string& text, const DeviceSpec& device) {
  if (text == "off") return {};
  if (text == "nccl") return measured_held_sms(device);
  HeldSms held = HeldSms::as_executed();
  if (text == "on") return held;
  if (text.find('=') == std::string::npos) {
    throw InputError(concat("--hold-sms ", quote(text), " must be on, off, nccl or parameters such as ", example));
  }
  std::string file;
  std::string priority;
  auto parts = split(text, ',');
  const bool measured = parts[0] == "nccl";
  if (measured) held = measured_held_sms(device);
  if (measured || parts[0] == "on") parts.erase(parts.begin());
  for (const auto& [key, value] : parse_options({parts.begin(), parts.end()}, example)) {
    if (key == "ctas") {
      held.pair_ctas = parse_count(key, value, 0);
    } else if (key == "collective-ctas") {
      held.collective_ctas = parse_count(key, value, 0);
    } else if (key == "state-ctas") {
      held.state_ctas = parse_count(key, value, 0);
    } else if (key == "expert-ctas") {
      held.expert_ctas = parse_count(key, value, 0);
    } else if (key == "state-rate") {
      held.state_rate = parse_bandwidth(value);
    } else if (key == "waiting") {
      held.waiting = parse_switch(key, value);
    } else if (key == "copy-engines") {
      held.copy_engines = parse_reach(key, value);
    } else if (key == "puts") {
      held.puts = parse_reach(key, value);
    } else if (key == "launch-order" && (value == "implicit" || value == "off")) {
      held.launch_order_implicit = value == "implicit";
    } else if (key == "launch-order") {
      throw InputError(concat("--hold-sms: launch-order=", one_line(value), " must be implicit or off"));
    } else if (key == "sms") {
      held.sms = parse_count(key, value, 1);
    } else if (key == "speeds") {
      file = value;
    } else if (key == "priority" && (value == "high" || value == "low")) {
      priority = value;
    } else if (key == "priority") {
      throw InputError(concat("--hold-sms: priority=", one_line(value), " must be high or low"));
    } else {
      throw InputError(
          concat("--hold-sms: ", unknown_name("parameter", key,
                                              {"ctas", "collective-ctas", "expert-ctas", "state-ctas", "state-rate", "waiting",
                                               "sms", "speeds", "priority", "copy-engines", "puts", "launch-order"})));
    }
  }
  if (held.is_off()) throw InputError("--hold-sms: with ctas=0 and collective-ctas=0 nothing is held; use off");
  if (file.empty() && !priority.empty()) {
    throw InputError("--hold-sms: priority chooses among measured speeds; give speeds=FILE too, or leave it out");
  }
  if (!file.empty()) {
    const HeldSpeeds found = parse_held_speeds(read_text(file, "file of speeds beside held SMs"), one_line(file),
                                               priority.empty() ? "high" : priority);
    held.speeds = found.speeds;
    held.measured_sms = found.sms;
  }
  return held;
}

}  // namespace tawpipe::answers
