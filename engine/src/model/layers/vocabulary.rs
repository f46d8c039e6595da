use std::ops::Range;
use std::rc::Rc;

use crate::backend::{Backend, BackendError, Embed, Gather, Product};
use crate::collective::{AllGather, PassError, RankRows, Site};
use crate::model::{Loader, ModelError, Pass, Scratch, Slice};

/// Token embeddings, shared among ranks by token id.
pub struct Embedding<B: Backend> {
    table: Rc<B::Linear>,
    first: usize,
    hidden: usize,
}

impl<B: Backend> Embedding<B> {
    /// `load` stands at the embedding's parent (`model`).
    pub fn load(load: &mut Loader<'_, B>) -> Result<Self, ModelError> {
        let (hidden, vocabulary) = (load.config.hidden, load.config.vocabulary);
        let rows = load.share.columns(vocabulary);
        let (first, slice) = (rows.start, Slice::whole("embed_tokens", vocabulary, hidden).outputs(rows));
        Ok(Self { table: Rc::new(load.linear(&[slice])?), first, hidden })
    }

    /// The same table for another model of this rank.
    pub fn shared(&self) -> Self {
        Self { table: Rc::clone(&self.table), first: self.first, hidden: self.hidden }
    }

    /// The table, for an output projection that is tied to it.
    pub fn table(&self) -> &Rc<B::Linear> {
        &self.table
    }

    /// The step's tokens to the residual stream.
    pub fn forward(&self, pass: &mut Pass<'_, B>, scratch: &mut Scratch<B>) -> Result<(), PassError> {
        let (step, rows, buffer) = (pass.step, pass.rows, &mut scratch.residual);
        pass.backend.embed(Embed { step, table: &self.table, first: self.first, output: buffer, rows })?;
        let place = (Site::Embedding, pass.phase);
        pass.communicator.all_reduce(pass.backend, place, RankRows { buffer, rows, width: self.hidden })
    }
}

/// The output projection, shared among ranks by token id, and the buffers of its results.
pub struct Head<B: Backend> {
    weight: Rc<B::Linear>,
    hidden: usize,
    vocabulary: usize,
    /// Columns of each rank but the last ones.
    width: usize,
    /// `[capacity, hidden]`.
    picked: B::Buffer,
    /// `[capacity, width]`.
    part: B::Buffer,
    /// `[capacity, vocabulary]`; on a single rank `part` holds the logits.
    logits: Option<B::Buffer>,
    capacity: usize,
}

impl<B: Backend> Head<B> {
    /// `load` stands at the root; the weight is `lm_head` or, where tied, another one of the same shape. `capacity` is
    /// the most rows of one [`Head::forward`].
    pub fn load(load: &mut Loader<'_, B>, tied: Option<&Rc<B::Linear>>, capacity: usize) -> Result<Self, ModelError> {
        let (hidden, vocabulary) = (load.config.hidden, load.config.vocabulary);
        let rows = load.share.columns(vocabulary);
        let weight = match tied {
            Some(weight) => Rc::clone(weight),
            None => Rc::new(load.linear(&[Slice::whole("lm_head", vocabulary, hidden).outputs(rows)])?),
        };
        let width = load.share.column_width(vocabulary);
        let several = load.share.world_size > 1;
        let logits = several.then(|| load.backend.allocate_logits(capacity * vocabulary)).transpose()?;
        let picked = load.backend.allocate_buffer(capacity * hidden)?;
        let part = load.backend.allocate_logits(capacity * width)?;
        Ok(Self { weight, hidden, vocabulary, width, picked, part, logits, capacity })
    }

    /// Where logits are, `[rows, vocabulary]`.
    pub fn last(&self) -> &B::Buffer {
        self.logits.as_ref().unwrap_or(&self.part)
    }

    pub fn last_mut(&mut self) -> &mut B::Buffer {
        self.logits.as_mut().unwrap_or(&mut self.part)
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The projection, for another model of this rank.
    pub fn weight(&self) -> &Rc<B::Linear> {
        &self.weight
    }

    /// Logits `[range.len(), vocabulary]` of some of the step's logit rows, whole on every rank.
    pub fn forward(
        &mut self,
        pass: &mut Pass<'_, B>,
        scratch: &Scratch<B>,
        range: Range<usize>,
    ) -> Result<&B::Buffer, PassError> {
        let (step, rows, backend) = (pass.step, range.len(), &mut *pass.backend);
        if rows > self.capacity {
            return Err(BackendError::StepTooLarge { what: "logit rows", actual: rows, limit: self.capacity }.into());
        }
        let (input, output) = (&scratch.normed, &mut self.picked);
        backend.gather(Gather { step, range, input, width: self.hidden, output })?;
        let weight = &*self.weight;
        backend.linear(Product { weight, input: &self.picked, output: &mut self.part, rows })?;
        let Some(output) = &mut self.logits else { return Ok(&self.part) };
        let (input, width, total) = (&self.part, self.width, self.vocabulary);
        let gather = AllGather { input, output, rows, width, total };
        pass.communicator.all_gather(backend, (Site::LogitsGather, pass.phase), gather)?;
        Ok(output)
    }
}
