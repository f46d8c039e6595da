//! A finding about a file: what, where, why and what to do. Rendering is the tool's business.

use std::ops::Range;

/// How bad a finding is. Only errors fail a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Warning,
    Error,
}

/// A replacement that repairs the finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// Byte range of the file to replace.
    pub span: Range<usize>,
    pub replacement: String,
}

/// A second place that belongs to the finding, e.g. the first of two equal keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// Path as given to the loader; the finding's own file when `None`.
    pub path: Option<String>,
    pub span: Range<usize>,
    pub label: String,
}

/// One finding in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Stable name of the kind, e.g. `duplicate-key`.
    pub code: &'static str,
    pub severity: Severity,
    /// One line, without the place.
    pub message: String,
    /// Path as given to the loader.
    pub path: String,
    /// Byte range in the file; empty at 0 when the whole file is meant.
    pub span: Range<usize>,
    /// What stands at the span; printed under it.
    pub label: String,
    /// What to do.
    pub hint: Option<String>,
    pub fix: Option<Fix>,
    pub related: Vec<Related>,
}

impl Problem {
    /// An error at a byte range of `path`.
    pub fn error(code: &'static str, path: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: message.into(),
            path: path.to_owned(),
            span,
            label: String::new(),
            hint: None,
            fix: None,
            related: Vec::new(),
        }
    }

    pub fn warning(code: &'static str, path: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, path, span, message) }
    }

    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Replaces the finding's own span.
    pub fn fix(mut self, replacement: impl Into<String>) -> Self {
        self.fix = Some(Fix { span: self.span.clone(), replacement: replacement.into() });
        self
    }

    pub fn related(mut self, path: Option<String>, span: Range<usize>, label: impl Into<String>) -> Self {
        self.related.push(Related { path, span, label: label.into() });
        self
    }
}
