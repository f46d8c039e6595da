//! Attention, which rotates and appends the step's own rows itself where its kernel can.

use engine::backend::{Attend, BackendError};
use engine::types::Phase;

use super::CudaBackend;
use super::arguments::place;
use super::launch::word;
use super::pending::Pending;
use crate::device::Reach;
use crate::kernels::{self, Fresh, Near};
use crate::step::AttentionGeometry;

/// Rows of a step up to which attention rotates and appends them, where a sequence may have several: a warp makes all new
/// rows of its page, one after the other.
const FRESH_ROWS: usize = 4;

impl CudaBackend {
    pub(super) fn launch_attend(&mut self, arguments: Attend<'_, Self>) -> Result<(), BackendError> {
        let Attend { step, source, query, groups, scale, cache, layer, ref output, rows } = arguments;
        let message = "attention before the step was allocated".to_owned();
        let room = self.attention.as_ref().ok_or(BackendError::Device { operation: "attend", message })?;
        let space = room.space();
        // A step is cut for one arrangement of heads; another one's would read the wrong items.
        let geometry = AttentionGeometry::new(&groups, cache.heads, self.gpu.multiprocessors as usize);
        if geometry != step.geometry {
            let message = "models whose heads are grouped differently cannot share a rank; use --device cpu".to_owned();
            return Err(BackendError::Device { operation: "attend", message });
        }
        let fresh = self.take_fresh(&arguments);
        if fresh.is_none() {
            self.launch_pending()?;
        }
        if self.recording.is_some() && matches!(self.phase, Phase::Decode | Phase::Verify) {
            self.attended.insert(step.id());
        }
        let near = match self.phase {
            Phase::Decode => Some(Near::OneRow),
            Phase::Verify => Some(Near::Rows),
            Phase::Draft | Phase::Prefill => None,
        };
        let attend = kernels::Attend {
            step: *step.addresses(),
            geometry: step.geometry,
            rows: word(rows),
            whole_items: word(step.whole_items()),
            source: source.memory.pointer(),
            query,
            groups,
            cache: place(cache, layer),
            scale,
            output: output.memory.pointer(),
            space,
            fresh,
            near: near.filter(|_| self.recording == Some(Reach::Near)),
        };
        // SAFETY: the step was filled with this geometry; the room was made for the largest step.
        Ok(unsafe { kernels::attend(&self.launcher, &self.kernels, &attend) }?)
    }

    /// The rotation and append that wait, if attention can do them: for the same rows of the same layer, and no more of a
    /// sequence than the kernel takes that splits the context.
    fn take_fresh(&mut self, attend: &Attend<'_, Self>) -> Option<Fresh> {
        let Pending::Appended(call) = self.pending else { return None };
        let same = call.buffer == attend.source.memory.pointer()
            && call.cache.keys == attend.cache.keys(attend.layer)
            && (call.rows, call.query_heads) == (word(attend.rows), word(attend.groups.query_heads))
            && attend.step.whole_items() == 0
            && (self.phase == Phase::Decode || attend.rows <= FRESH_ROWS || self.is_near(&call, attend));
        if !same {
            return None;
        }
        self.pending = Pending::Nothing;
        let key_offset = call.query_heads * call.width;
        let value_offset = key_offset + call.cache.heads * call.width;
        Some(Fresh { angles: call.angles, norm: call.norm, key_offset, value_offset })
    }

    /// Whether a pass is being recorded for steps of short contexts, and these heads have kernels for them.
    fn is_near(&self, call: &kernels::RotateAppend, attend: &Attend<'_, Self>) -> bool {
        let group = word(attend.groups.group);
        self.recording == Some(Reach::Near)
            && self.kernels.attends_near_with(call.cache.padded, call.angles.pairs, group)
    }
}
