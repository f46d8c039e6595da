//! Values of the keys that nobody sets. Keys without one here follow from the model or the machine.

use super::options::Options;
use super::quantity::Bytes;
use super::words::{AllReduce, CpuPrecision, Device, Fusion, LoadFormat, LogLevel, NumberType, SchedulingPolicy};

pub fn defaults() -> Options {
    Options {
        load_format: Some(LoadFormat::Auto),
        dtype: Some(NumberType::Auto),
        seed: Some(0),
        // Nobody else's machine can reach a server that was started without a thought about keys.
        host: Some("127.0.0.1".to_owned()),
        port: Some(8000),
        max_body_size: Some(Bytes(32 << 20)),
        max_outputs: Some(128),
        max_logprobs: Some(20),
        shutdown_timeout: Some(30),
        sse_keep_alive_interval: Some(15),
        log_level: Some(LogLevel::Info),
        max_num_seqs: Some(64),
        max_num_queued_reqs: Some(1024),
        scheduling_policy: Some(SchedulingPolicy::Priority),
        enable_prefix_caching: Some(true),
        gpu_memory_utilization: Some(0.92),
        device: Some(Device::Auto),
        cpu_precision: Some(CpuPrecision::Fast),
        step_timeout: Some(120),
        tensor_parallel_size: Some(1),
        allreduce: Some(AllReduce::Auto),
        allreduce_prefill: Some(AllReduce::Auto),
        fusion: Some(Fusion::Auto),
        strict: Some(false),
        allow_fallback: Some(false),
        speculative_adaptive: Some(true),
        mock_engine: Some(false),
        mock_interval: Some(0),
        ..Options::default()
    }
}
