// What `tawpipe serve` is asked by an address, and its pages: the form, and the answer of plan or compare with it.
// Not: HTTP (http.hpp), nor the computation (command_run.hpp).
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "command_run.hpp"
#include "http.hpp"

namespace tawpipe::sim {

/// The command whose page is the answer, such as plan --cluster dgx-h100; or an answer at once: the form, or what is wrong.
std::variant<std::vector<std::string>, HttpAnswer> arguments_of(const HttpRequest& request);

/// What that command found, below the form.
HttpAnswer answer_of(const HttpRequest& request, RunEnd& end);

/// The form, with a sentence why there is no answer; "": none.
HttpAnswer form_page(const HttpRequest& request, int status, const std::string& why);

}  // namespace tawpipe::sim
