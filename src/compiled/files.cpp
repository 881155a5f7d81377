// The part of tawpipe::compiled that reads files: Boost.Graph, JSON, pugixml and yaml-cpp stay in here.
// Not: in a program that only links tawpipe::tawpipe.
#include "compiled/schedules_part.hpp"
#include "tawpipe/frameworks/detail/torchtitan_experts.hpp"  // with what predict.cpp compiles
#include "tawpipe/frameworks/detail/torchtitan_models.hpp"
#include "tawpipe/frameworks/megatron.hpp"
#include "tawpipe/frameworks/toml_settings.hpp"
#include "tawpipe/frameworks/torchtitan_command.hpp"  // but not torchtitan.hpp, which has JSON
#undef TAWPIPE_BODIES
#define TAWPIPE_BODIES 1
#include "tawpipe/frameworks/yaml_job.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/topology/cluster_change.hpp"
#include "tawpipe/topology/cluster_file.hpp"
