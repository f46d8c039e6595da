//! The plan and its call counters, for `/plan` and `/metrics`.

use std::sync::Arc;

use engine::collective::CallCounters;
use engine::plan::Plan;
use engine::runner::Engine;
use engine_server::backend::{CollectiveCalls, PlanFallback, PlanReport};
use serde_json::{Value, json};

/// A plan that is being served.
pub struct ServedPlan {
    plan: Plan,
    counters: Arc<CallCounters>,
    engine: Engine,
}

impl ServedPlan {
    pub fn new(plan: Plan, counters: Arc<CallCounters>, engine: Engine) -> Self {
        Self { plan, counters, engine }
    }
}

impl PlanReport for ServedPlan {
    fn document(&self) -> Value {
        let mut document = serde_json::to_value(&self.plan).unwrap_or_else(|error| json!({"error": error.to_string()}));
        let calls: Vec<Value> = self
            .collective_calls()
            .into_iter()
            .map(|call| {
                json!({
                    "operation": call.operation, "site": call.site, "phase": call.phase, "algorithm": call.algorithm,
                    "fusion": call.fusion, "size_bucket": call.size_bucket, "calls": call.calls,
                })
            })
            .collect();
        document["calls"] = Value::Array(calls);
        if let Some(speculation) = self.engine.speculation() {
            document["speculation"] = json!(speculation);
        }
        document
    }

    fn collective_calls(&self) -> Vec<CollectiveCalls> {
        let row = |(key, calls): (engine::collective::CallKey, u64)| CollectiveCalls {
            operation: key.operation.name().to_owned(),
            site: key.site.name().to_owned(),
            phase: key.phase.name().to_owned(),
            algorithm: key.algorithm.to_string(),
            fusion: key.fusion.to_string(),
            size_bucket: key.bucket.to_string(),
            calls,
        };
        self.counters.snapshot().into_iter().map(row).collect()
    }

    fn fallbacks(&self) -> Vec<PlanFallback> {
        let rows = self.plan.fallbacks().flat_map(|site| {
            site.reasons.iter().map(|reason| PlanFallback {
                operation: site.operation.name().to_owned(),
                site: site.site.name().to_owned(),
                phase: site.phase.name().to_owned(),
                algorithm: site.algorithm.clone().unwrap_or_else(|| "none".to_owned()),
                reason: reason.reason.clone(),
            })
        });
        rows.collect()
    }
}
