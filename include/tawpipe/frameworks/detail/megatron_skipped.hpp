// Megatron-LM's flags that a plan does not have: those that affect the layout, and those that do
// not.
// Not: the flags that a plan has (frameworks/megatron.hpp).
#pragma once

#include <string_view>
#include <vector>

#include "tawpipe/frameworks/setting.hpp"

namespace tawpipe::inline v0::detail {

/// Source: NVIDIA/Megatron-LM, megatron/training/arguments.py (core 0.15).
inline std::vector<ForeignSetting> megatron_foreign() {
  constexpr std::string_view layers = "layers of other kinds than a decoder's are not modelled";
  constexpr std::string_view states = "the optimizer's states are simulated in 12 bytes a parameter";
  constexpr std::string_view parts = "simulated as if all collectives of tensor parallelism overlapped products";
  return {
      {"--mtp-hybrid-override-pattern", "", "the layers of each are after a / in --hybrid-layer-pattern now"},
      {"--heterogeneous-layers-config-path", "", layers},
      {"--heterogeneous-layers-config-encoded-json", "", layers},
      {"--retro-add-retriever", "", layers},
      {"--decoder-num-layers", "", layers},
      {"--decoder-seq-length", "", layers},
      {"--num-distributed-optimizer-instances", "1", "several copies of the sharded states are not modelled"},
      {"--enable-full-sharding-in-hsdp", "", "several copies of the sharded states are not modelled"},
      {"--yaml-cfg", "", "flags in a YAML file are not read; write them out"},
      {"--use-checkpoint-args", "", "what a checkpoint says is not known; read as the flags say", false},
      {"--use-mp-args-from-checkpoint-args", "", "what a checkpoint says is not known; read as the flags say", false},
      {"--perform-rl-step", "", "reinforcement learning is not modelled"},
      {"--rampup-batch-size", "", "simulated at the full --global-batch-size", false},
      {"--no-overlap-p2p-communication", "", "simulated with overlapped sends and receives of interleaved 1F1B", false},
      {"--microbatch-group-size-per-virtual-pipeline-stage", "", "simulated in groups of as many microbatches as stages", false},
      {"--overlap-param-gather-with-optimizer-step", "", "simulated with gathers after the whole update", false},
      {"--disable-tp-comm-overlap-ag", "", parts, false},
      {"--disable-tp-comm-overlap-rs", "", parts, false},
      {"--disable-tp-comm-bulk-dgrad", "", parts, false},
      {"--disable-tp-comm-bulk-wgrad", "", parts, false},
      {"--disable-tp-comm-split-ag", "", parts, false},
      {"--disable-tp-comm-split-rs", "", parts, false},
      {"--distribute-saved-activations", "", "simulated with saved activations whole on each device", false},
      {"--defer-embedding-wgrad-compute", "", "simulated in place", false},
      {"--main-grads-dtype", "fp32", "simulated in the numbers in which gradients are summed", false},
      {"--optimizer", "adam", states, false},
      {"--optimizer-offload-fraction", "1 1.0", "simulated with all states offloaded", false},
      {"--optimizer-state-offload-fraction", "1 1.0", "simulated with all states offloaded", false},
      {"--fp4-param-gather", "", "simulated with weights gathered in 16 bits", false},
      {"--fp32-residual-connection", "", "simulated with residuals in 16 bits", false},
      {"--first-last-layers-bf16", "", "simulated with all layers alike", false}};
}

/// Those that take a value. Source: as megatron_foreign(); a few are from earlier versions.
inline constexpr std::string_view megatron_skipped =
    // kernels and numbers
    "--fp8-margin --fp8-interval --fp8-amax-history-len --fp8-amax-compute-algo --fp8-quantizer-factory "
    "--num-layers-at-start-in-bf16 --num-layers-at-end-in-bf16 --fp4-recipe --fp4-quantizer-factory --loss-scale "
    "--initial-loss-scale --min-loss-scale --loss-scale-window --hysteresis --cuda-graph-warmup-steps "
    "--manual-gc-interval --empty-unused-memory-level --train-sync-interval --optimizer-state-offload-chunk-size-mb "
    "--dump-param-to-param-group-map --wgrad-deferral-limit --kitchen-config-file --kitchen-recipe-number "
    // communication that does not change the layout
    "--tp-comm-overlap-cfg --tp-comm-bootstrap-backend --pipeline-model-parallel-comm-backend "
    "--high-priority-stream-groups --distributed-backend --distributed-timeout-minutes "
    "--distributed-timeout-seconds-after-init --ddp-num-buckets --local-rank --lazy-mpu-init --sharp-enabled-group "
    "--suggested-communication-unit-size --nccl-communicator-config-path --replication-jump --replication-factor "
    "--DDP-impl --check-weight-hash-across-dp-replicas-interval "
    // the model's details
    "--rotary-base --rotary-percent --rotary-seq-len-interpolation-factor --rope-scaling-factor --rope-type "
    "--no-rope-freq --mrope-section --relative-attention-num-buckets --relative-attention-max-distance "
    "--make-vocab-size-divisible-by --norm-epsilon --yarn-beta-fast --yarn-beta-slow --onnx-safe "
    "--mtp-loss-scaling-factor --spec "
    "--mscale --mscale-all-dim --moe-* --init-method-std --embedding-init-method-std "
    // optimizer and learning rate
    "--weight-decay --start-weight-decay --end-weight-decay --weight-decay-incr-style --clip-grad --adam-beta1 "
    "--adam-beta2 --adam-eps --sgd-momentum --muon-* --lr --lr-decay-style --lr-wsd-decay-style --lr-decay-iters "
    "--lr-decay-samples --lr-wsd-decay-samples --lr-wsd-decay-iters --lr-warmup-fraction --lr-warmup-iters "
    "--lr-warmup-samples --lr-warmup-init --warmup --min-lr --decoupled-lr --decoupled-min-lr "
    // steps, data, tokenizer
    "--train-iters --train-samples --exit-interval --exit-duration-in-mins --iterations-to-skip --seed --data-path "
    "--split --train-data-path --valid-data-path --test-data-path --data-args-path --per-split-data-args-path "
    "--data-cache-path --retriever-seq-length --sample-rate --mask-prob --short-seq-prob --num-workers "
    "--num-dataset-builder-threads --object-storage-cache-path --mid-level-dataset-surplus "
    "--allow-ambiguous-pad-tokens --dataloader-type --vocab-file --merge-file --vocab-extra-ids --tokenizer-type "
    "--tokenizer-model --tokenizer-metadata --tiktoken-pattern --tiktoken-num-special-tokens "
    "--tiktoken-special-tokens --eval-iters --eval-interval --sft-tokenizer-prompt-format "
    // checkpoints
    "--save --save-interval --persistent-save-interval --save-retain-interval --load --non-persistent-* "
    "--pretrained-checkpoint --ckpt-step --dist-ckpt-format --ckpt-convert-format --ckpt-convert-save "
    "--dist-ckpt-strictness "
    // logs, profiles, restarts
    "--profile-step-start --profile-step-end --profile-ranks --memory-snapshot-path "
    "--result-rejected-tracker-filename --log-* --timing-log-level --timing-log-option --tensorboard-dir "
    "--tensorboard-log-interval --tensorboard-queue-size --wandb-* --logging-level --one-logger-* --app-tag-run-name "
    "--app-tag-run-version --config-logger-dir --straggler-ctrlr-port --straggler-minmax-count --inprocess-* "
    "--error-injection-rate --error-injection-type --rerun-mode --adlr-autoresume-interval "
    // inference, vision, retrieval, reinforcement learning
    "--inference-* --max-tokens-to-oom --bert-embedder-type --symmetric-ar-type --mlp-chunks-for-prefill --retro-* "
    "--ict-head-size --biencoder-* --ict-load --bert-load --titles-data-path --query-in-block-prob "
    "--evidence-data-path --retriever-* --block-data-path --embedding-path --indexer-batch-size "
    "--indexer-log-interval --num-classes --img-h --img-w --num-channels --patch-dim --classes-fraction "
    "--data-per-class-fraction --head-lr-mult --vision-* --swin-backbone-type --mask-type --mask-factor "
    "--iter-per-epoch --dino-* --rl-* --grpo-* --langrl-*";

/// Those that take none. Source: as megatron_foreign().
inline constexpr std::string_view megatron_skipped_switches =
    // kernels and numbers
    "--no-fp8-wgrad --inference-rng-tracker --use-mcore-models --attention-softmax-in-fp32 "
    "--apply-query-key-layer-scaling --no-query-key-layer-scaling --fp16-lm-cross-entropy "
    "--disable-bf16-reduced-precision-matmul --reuse-grad-buf-for-mxfp8-param-ag --no-masked-softmax-fusion "
    "--use-fused-weighted-squared-relu "
    "--no-persist-layer-norm --no-async-tensor-model-parallel-allreduce --use-te-activation-func --manual-gc "
    "--no-manual-gc-eval --deterministic-mode --use-cpu-initialization --calculate-per-token-loss "
    "--use-torch-optimizer-for-cpu-offload --overlap-cpu-optimizer-d2h-h2d --no-pin-cpu-grads --no-pin-cpu-params "
    "--no-clone-scatter-output-in-embedding "
    // communication that does not change the layout
    "--tp-comm-overlap-rs-dgrad --overlap-p2p-communication-warmup-flush --no-align-grad-reduce "
    "--no-align-param-gather --ddp-pad-buckets-for-high-nccl-busbw --ddp-reduce-scatter-with-fp32-accumulation "
    "--ddp-average-in-collective --no-scatter-gather-tensors-in-pipeline --use-ring-exchange-p2p --use-nccl-ub "
    "--disable-symmetric-registration --use-sharp --init-model-with-meta-device --no-gradient-reduce-div-fusion "
    "--fsdp-double-buffer --keep-fp8-transpose-cache --replication --disable-gloo-process-groups "
    "--data-parallel-random-init --decrease-batch-size-if-needed "
    // the model's details
    "--rotary-interleaved --yarn-correction-range-round-to-int --no-yarn-correction-range-round-to-int "
    "--use-rotary-position-embeddings --use-rope-scaling --no-position-embedding "
    "--apply-layernorm-1p --apply-residual-connection-post-layernorm --openai-gelu "
    "--bert-no-binary-head --qk-l2-norm --disable-mamba-mem-eff-path "
    "--cache-mla-latents --moe-shared-expert-overlap "
    "--moe-use-legacy-grouped-gemm --moe-extended-tp --moe-use-upcycling "
    "--moe-router-fusion --moe-router-pre-softmax --moe-router-enable-expert-bias --moe-router-force-load-balancing "
    "--moe-router-padding-for-fp8 --moe-per-layer-logging --moe-enable-deepep --moe-permute-fusion "
    "--moe-pad-expert-input-to-capacity --moe-apply-probs-on-input --moe-pad-experts-for-cuda-graph-inference "
    "--init-method-xavier-uniform --enable-experimental "
    // optimizer and learning rate
    "--override-opt_param-scheduler --override-opt-param-scheduler --use-checkpoint-opt_param-scheduler "
    "--use-checkpoint-opt-param-scheduler "
    // steps, data, tokenizer
    "--exit-signal-handler --skip-train --no-mmap-bin-files --mock-data --reset-position-ids --reset-attention-mask "
    "--eod-mask-loss --no-create-attention-mask-in-dataloader --legacy-tokenizer --trust-remote-code "
    "--full-validation --multiple-validation-sets --test-mode --sft "
    // checkpoints
    "--no-save-optim --no-save-rng --no-load-optim --load-main-params-from-ckpt --no-load-rng "
    "--no-strict-fsdp-dtensor-load --finetune --no-initialization --no-use-tokenizer-model-from-checkpoint-args "
    "--exit-on-missing-checkpoint --use-dist-ckpt --use-persistent-ckpt-worker --auto-detect-ckpt-format "
    "--ckpt-convert-update-legacy-dist-opt-format --ckpt-fully-parallel-save --no-ckpt-fully-parallel-save "
    "--async-save --ckpt-fully-parallel-load --ckpt-assume-constant-structure --dist-ckpt-save-pre-mcore-014 "
    "--dist-ckpt-optim-fully-reshardable --distrib-optim-fully-reshardable-mem-efficient "
    // logs, profiles, restarts
    "--check-for-spiky-loss --check-for-large-grads --profile --use-pytorch-profiler --record-memory-history "
    "--log-params-norm --log-num-zeros-in-grad --log-throughput --log-progress --log-energy "
    "--log-timers-to-tensorboard --log-validation-ppl-to-tensorboard --log-memory-to-tensorboard "
    "--log-world-size-to-tensorboard --log-straggler --no-barrier-with-level-1-timing "
    "--no-log-loss-scale-to-tensorboard --no-one-logger --one-logger-async --disable-straggler-on-startup "
    "--run-workload-inspector-server --inprocess-restart --inprocess-empty-cuda-cache --enable-ft-package "
    "--calc-ft-timeouts --adlr-autoresume --disable-msc "
    // inference, vision, retrieval, reinforcement learning
    "--output-bert-embeddings --flash-decode --use-legacy-static-engine --decode-only-cuda-graphs "
    "--nccl-all-reduce-for-prefill --disable-chunked-prefill --biencoder-shared-query-context-model "
    "--use-one-sent-docs --retriever-score-scaling --no-data-sharding --vision-pretraining --dino-norm-last-layer "
    "--grpo-filter-groups-with-same-reward --rl-offload-optimizer-during-inference --rl-use-sequence-packing";

}  // namespace tawpipe::v0::detail
