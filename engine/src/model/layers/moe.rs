use super::Mlp;
use crate::backend::{Add, Backend, ExpertParts, Mix, Product, Route};
use crate::collective::PassError;
use crate::model::{Activation, Loader, ModelError, MoeConfig, Pass, Scratch, Slice, Widths};

/// A router, its experts and, where the family has them, shared experts that see every token. Every rank has a part
/// of every expert, by intermediate columns; the router runs on every rank.
pub struct MixtureOfExperts<B: Backend> {
    router: B::Linear,
    bias: Option<B::Vector>,
    experts: B::Experts,
    shared: Option<Mlp<B>>,
    config: MoeConfig,
    activation: Activation,
    hidden: usize,
}

impl<B: Backend> MixtureOfExperts<B> {
    /// `load` stands at `gate`'s parent (`model.layers.N.mlp`).
    pub fn load(load: &mut Loader<'_, B>, moe: &MoeConfig) -> Result<Self, ModelError> {
        let router = load.linear(&[Slice::whole("gate", moe.experts, load.config.hidden)])?;
        let bias = moe.correction_bias.then(|| load.vector("gate.e_score_correction_bias", moe.experts)).transpose()?;
        let shared_width = moe.shared_experts * moe.shared_intermediate;
        let shared = (shared_width > 0).then(|| Mlp::load(&mut load.at("shared_experts"), shared_width)).transpose()?;
        let (config, activation, hidden) = (moe.clone(), load.config.activation, load.config.hidden);
        Ok(Self { router, bias, experts: load_experts(load, moe)?, shared, config, activation, hidden })
    }

    pub fn widths(&self) -> Widths {
        let shared = self.shared.as_ref().map_or(Widths::default(), Mlp::widths);
        let (experts, experts_per_token) = (self.config.experts, self.config.experts_per_token);
        shared.or(Widths { experts, experts_per_token, ..Widths::default() })
    }

    /// `scratch.normed` to this rank's part in `scratch.partial`.
    pub fn forward(&self, pass: &mut Pass<'_, B>, scratch: &mut Scratch<B>) -> Result<(), PassError> {
        if let Some(shared) = &self.shared {
            shared.forward(pass, scratch)?;
        }
        let (rows, backend) = (pass.rows, &mut *pass.backend);
        let (weight, input) = (&self.router, &scratch.normed);
        backend.linear(Product { weight, input, output: &mut scratch.router_logits, rows })?;
        let (config, bias, logits) = (&self.config, self.bias.as_ref(), &scratch.router_logits);
        backend.route(Route { config, logits, bias, routes: &mut scratch.routes, rows })?;
        let (experts, activation, routes) = (&self.experts, self.activation, &scratch.routes);
        let output = if self.shared.is_some() { &mut scratch.mixed } else { &mut scratch.partial };
        backend.mix(Mix { experts, activation, input, width: self.hidden, routes, output, rows })?;
        if self.shared.is_some() {
            let (addend, target) = (&scratch.mixed, &mut scratch.partial);
            backend.add(Add { addend, target, width: self.hidden, rows })?;
        }
        Ok(())
    }
}

fn load_experts<B: Backend>(load: &mut Loader<'_, B>, moe: &MoeConfig) -> Result<B::Experts, ModelError> {
    let hidden = load.config.hidden;
    let mut parts = Vec::with_capacity(moe.experts);
    for expert in 0..moe.experts {
        let [gate, up, down] = ["gate", "up", "down"].map(|name| format!("experts.{expert}.{name}_proj"));
        let part = load.share.parts(moe.intermediate, load.block(&down));
        let project = |name| load.part(&Slice::whole(name, moe.intermediate, hidden).outputs(part.clone()));
        let down = Slice::whole(&down, hidden, moe.intermediate).inputs(part.clone());
        parts.push(ExpertParts { gate: project(&gate)?, up: project(&up)?, down: load.part(&down)? });
    }
    Ok(load.backend.load_experts(&parts)?)
}
