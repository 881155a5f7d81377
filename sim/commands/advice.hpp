// If something does not fit the devices' memory: the user's command, changed so that it does.
// Not: the search for that layout (search/what_fits.hpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "../request.hpp"
#include "tawpipe/search/what_fits.hpp"

namespace tawpipe::sim {

/// Flags and their new values, in the order in which they are reported; "" removes the flag.
using FlagChanges = std::vector<std::pair<std::string, std::string>>;

/// The flags by which the layout differs from the one requested.
FlagChanges changes_for(const Problem& asked, const FittingLayout& fitting);

/// "tawpipe" and the arguments of the command line as given, with these changes.
/// @param arguments  the command first; a flag is "--flag", "value" or "--flag=value"
std::string changed_command(const std::vector<std::string>& arguments, const FlagChanges& changes);

/// What fits, how, and on a line of its own the command.
std::string fitting_text(const Request& request, const Problem& asked, const FittingLayout& fitting);

}  // namespace tawpipe::sim
