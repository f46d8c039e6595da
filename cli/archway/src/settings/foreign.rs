//! Flags of SGLang and vLLM for which there is nothing here, each with the reason that a user gets.

const GRAPHS: &str = "which steps run as graphs follows from the plan";
const PARALLEL: &str = "only tensor parallelism is served";
const MACHINES: &str = "one server runs on one machine";
const DEVICES: &str = "choose devices with CUDA_VISIBLE_DEVICES";
const PAGES: &str = "pages hold 16 tokens";
const LORA: &str = "adapters are not served";
const TOOLS: &str = "tool calls are not served";
const STRUCTURE: &str = "structured output is not served";
const TLS: &str = "put a proxy in front of the server for TLS";
const KERNELS: &str = "kernels follow from the capability database; see `archway plan`";
const EXPERTS: &str = "experts are not spread over machines";
const DISAGGREGATION: &str = "prefill and decode run in the same server";
const STREAM: &str = "every token is sent when it is known";
const TOKENIZER: &str = "there is one tokenizer, in Rust";
const NCCL: &str = "use `--allreduce nccl`; NCCL chooses its own buffers and algorithm";

/// Flags and why they are refused.
pub const FOREIGN: &[(&str, &str)] = &[
    ("tokenizer-mode", TOKENIZER),
    ("tokenizer-backend", TOKENIZER),
    ("uds", "listen on `--host` and `--port`"),
    ("pipeline-parallel-size", PARALLEL),
    ("pp-size", PARALLEL),
    ("data-parallel-size", PARALLEL),
    ("dp-size", PARALLEL),
    ("enable-dp-attention", PARALLEL),
    ("enable-expert-parallel", PARALLEL),
    ("ep-size", PARALLEL),
    ("decode-context-parallel-size", PARALLEL),
    ("prefill-context-parallel-size", PARALLEL),
    ("dcp-size", PARALLEL),
    ("attn-cp-size", PARALLEL),
    ("nnodes", MACHINES),
    ("node-rank", MACHINES),
    ("master-addr", MACHINES),
    ("master-port", MACHINES),
    ("dist-init-addr", MACHINES),
    ("headless", MACHINES),
    ("device-ids", DEVICES),
    ("base-gpu-id", DEVICES),
    ("gpu-id-step", DEVICES),
    ("quantization", "the format of the weights is read from their file"),
    ("kv-cache-dtype", "the key-value cache has the type that the plan gives it"),
    ("block-size", PAGES),
    ("page-size", PAGES),
    ("max-num-queued-tokens", "use `--max-num-queued-reqs`"),
    ("long-prefill-token-threshold", "use `--max-num-batched-tokens`"),
    ("radix-eviction-policy", "the pages that were used longest ago go first"),
    ("disable-overlap-schedule", "the next step is always planned while one runs"),
    ("enforce-eager", GRAPHS),
    ("cudagraph-capture-sizes", GRAPHS),
    ("max-cudagraph-capture-size", GRAPHS),
    ("compilation-config", GRAPHS),
    ("disable-cuda-graph", GRAPHS),
    ("cuda-graph-max-bs-decode", GRAPHS),
    ("cuda-graph-bs-decode", GRAPHS),
    ("cuda-graph-config", GRAPHS),
    ("attention-backend", KERNELS),
    ("attention-config", KERNELS),
    ("prefill-attention-backend", KERNELS),
    ("decode-attention-backend", KERNELS),
    ("moe-backend", KERNELS),
    ("moe-runner-backend", KERNELS),
    ("linear-backend", KERNELS),
    ("fp8-gemm-runner-backend", KERNELS),
    ("fp4-gemm-runner-backend", KERNELS),
    ("all2all-backend", EXPERTS),
    ("moe-a2a-backend", EXPERTS),
    ("deepep-mode", EXPERTS),
    ("flashinfer-allreduce-fusion-backend", "use `--fusion auto|fused|unfused`"),
    ("enable-symm-mem", NCCL),
    ("enable-nccl-nvls", NCCL),
    ("enable-mscclpp", "MSCCL++ is not among the algorithms; use `--allreduce`"),
    ("enable-lora", LORA),
    ("lora-modules", LORA),
    ("lora-paths", LORA),
    ("max-loras", LORA),
    ("max-lora-rank", LORA),
    ("max-loras-per-batch", LORA),
    ("enable-auto-tool-choice", TOOLS),
    ("tool-call-parser", TOOLS),
    ("reasoning-parser", "reasoning is not split from the answer"),
    ("default-chat-template-kwargs", "send `chat_template_kwargs` with the request"),
    ("grammar-backend", STRUCTURE),
    ("structured-outputs-config", STRUCTURE),
    ("stream-interval", STREAM),
    ("ssl-keyfile", TLS),
    ("ssl-certfile", TLS),
    ("admin-api-key", "there are no routes for administrators; use `--api-key`"),
    ("kv-transfer-config", DISAGGREGATION),
    ("disaggregation-mode", DISAGGREGATION),
    ("disaggregation-transfer-backend", DISAGGREGATION),
    ("disaggregation-bootstrap-port", DISAGGREGATION),
    ("kv-events-config", "events of the key-value cache are not published"),
];

/// Flags whose value asks for what happens anyway: flag, value, why.
pub const AGREED: &[(&str, &str, &str)] = &[
    ("tokenizer-mode", "auto", TOKENIZER),
    ("pipeline-parallel-size", "1", PARALLEL),
    ("pp-size", "1", PARALLEL),
    ("data-parallel-size", "1", PARALLEL),
    ("dp-size", "1", PARALLEL),
    ("ep-size", "1", PARALLEL),
    ("nnodes", "1", MACHINES),
    ("node-rank", "0", MACHINES),
    ("kv-cache-dtype", "auto", "the plan chooses it"),
    ("block-size", "16", PAGES),
    ("page-size", "16", PAGES),
    ("stream-interval", "1", STREAM),
    ("max-model-len", "auto", "the model's length is the default"),
    ("max-model-len", "-1", "the model's length is the default"),
];
