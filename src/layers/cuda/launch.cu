// Device code of layers/cuda/, compiled once: target tawpipe::cuda_layers has it.
// Not: the kernels themselves (include/tawpipe/layers/cuda/).
#include "tawpipe/layers/cuda/launch.cuh"
