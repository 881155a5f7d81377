// The catalogue's entries, compiled once for our own programs.
// Not: part of the library, which is headers.
#include "tawpipe/schedule/catalogue_entries.hpp"
