//! Parser events → tree, with every objection on the way.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span};

use super::node::{Entry, Node, NodeKind};
use super::scalar::{self, Objection};
use super::{Document, MAX_DEPTH, MAX_NODES, syntax};
use crate::problem::Problem;

/// A collection that is being read.
enum Open {
    Sequence {
        span: Range<usize>,
        items: Vec<Node>,
    },
    Mapping {
        span: Range<usize>,
        entries: Vec<Entry>,
        key: Option<(String, Range<usize>)>,
        seen: HashMap<String, Range<usize>>,
        skip: bool,
    },
}

struct Builder<'a> {
    path: &'a str,
    text: &'a str,
    stack: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    nodes: usize,
    problems: Vec<Problem>,
}

/// Reads a text.
pub(super) fn build(path: &str, text: &str) -> Document {
    let options = granit_parser::options! {
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH + 8,
        block_nesting_limit: MAX_DEPTH + 8,
    };
    let mut builder =
        Builder { path, text, stack: Vec::new(), root: None, documents: 0, nodes: 0, problems: Vec::new() };
    for event in Parser::new_from_str_with_options(text, options) {
        let going_on = match event {
            Ok((event, span)) => builder.event(event, span),
            Err(error) => {
                builder.problems.push(syntax::problem(path, text, &error));
                builder.root = None;
                false
            }
        };
        if !going_on {
            return Document { root: None, problems: builder.problems };
        }
    }
    if builder.root.is_none() && builder.problems.is_empty() {
        let problem = Problem::error("empty-file", path, 0..0, "the file holds no record");
        builder.problems.push(problem.hint("delete it, or write a record; `capdb add-arch` writes one"));
    }
    Document { root: builder.root, problems: builder.problems }
}

impl Builder<'_> {
    /// Takes one event; false when reading must stop.
    fn event(&mut self, event: Event<'_>, span: Span) -> bool {
        let range = span.byte_range().unwrap_or(0..0);
        match event {
            Event::DocumentStart(_, version) => return self.document(version.is_some(), range),
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.object(
                    range.clone(),
                    "anchor",
                    "aliases are not used in the database",
                    "write the value out; to share values, let one record extend another",
                );
                return self.node(Node { span: range, kind: NodeKind::Null }, true);
            }
            Event::Scalar(value, style, anchor, tag) => {
                self.decorations(&range, anchor, tag.is_some());
                return self.scalar(&value, style, range);
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.decorations(&range, anchor, tag.is_some());
                return self.open(range, |span| Open::Sequence { span, items: Vec::new() });
            }
            Event::MappingStart(_, anchor, tag) => {
                self.decorations(&range, anchor, tag.is_some());
                return self.open(range, |span| Open::Mapping {
                    span,
                    entries: Vec::new(),
                    key: None,
                    seen: HashMap::new(),
                    skip: false,
                });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let node = match self.stack.pop() {
                    Some(Open::Sequence { span, items }) => Node { span, kind: NodeKind::Sequence(items) },
                    Some(Open::Mapping { span, entries, .. }) => Node { span, kind: NodeKind::Mapping(entries) },
                    None => return false,
                };
                return self.node(node, false);
            }
            _ => {}
        }
        true
    }

    fn document(&mut self, directive: bool, range: Range<usize>) -> bool {
        self.documents += 1;
        if directive {
            self.object(range.clone(), "directive", "directives (`%`) are not used in the database", "remove the line");
        }
        if self.documents > 1 {
            self.object(
                range,
                "multiple-documents",
                "a second document in one file",
                "one file holds one record; move it to a file of its own",
            );
            return false;
        }
        true
    }

    fn object(&mut self, span: Range<usize>, code: &'static str, message: &str, hint: &str) {
        self.problems.push(Problem::error(code, self.path, span, message).hint(hint));
    }

    fn decorations(&mut self, range: &Range<usize>, anchor: usize, tag: bool) {
        let before = self.text[..range.start].rfind('\n').map_or(0, |newline| newline + 1)..range.start;
        let place = |sigil: char, text: &str| {
            text[before.clone()]
                .rfind(sigil)
                .map_or(range.clone(), |at| before.start + at..before.end.max(before.start + at + 1))
        };
        if anchor > 0 {
            let span = place('&', self.text);
            self.object(
                span,
                "anchor",
                "anchors are not used in the database",
                "write the value out; to share values, let one record extend another",
            );
        }
        if tag {
            let span = place('!', self.text);
            self.object(
                span,
                "tag",
                "tags (`!`) are not used in the database",
                "remove the tag; quote the value if it must be text",
            );
        }
    }

    fn open(&mut self, range: Range<usize>, make: impl FnOnce(Range<usize>) -> Open) -> bool {
        // A block collection has no text of its own, so it stands where its key stands.
        let span = match self.stack.last() {
            Some(Open::Mapping { key: Some((_, key_span)), .. }) if range.is_empty() => key_span.clone(),
            _ => range.clone(),
        };
        if let Some(Open::Mapping { key: key @ None, .. }) = self.stack.last_mut() {
            *key = Some((String::new(), range.clone()));
            self.object(range, "complex-key", "a mapping or list as a key", "keys are single words or numbers");
        }
        if self.stack.len() >= MAX_DEPTH {
            self.problems.push(syntax::too_deep(self.path, span));
            return false;
        }
        self.stack.push(make(span));
        true
    }

    fn scalar(&mut self, value: &str, style: ScalarStyle, range: Range<usize>) -> bool {
        let plain = matches!(style, ScalarStyle::Plain);
        if let Some(Open::Mapping { key: None, .. }) = self.stack.last() {
            return self.key(value, plain, range);
        }
        let kind = if plain { scalar::plain(value) } else { Ok(NodeKind::Text(value.to_owned())) };
        let kind = kind.unwrap_or_else(|objection| {
            self.reject(objection, range.clone());
            NodeKind::Text(value.to_owned())
        });
        // An empty value has no text of its own either.
        let span = match self.stack.last() {
            Some(Open::Mapping { key: Some((_, key_span)), .. }) if range.is_empty() => key_span.clone(),
            _ => range,
        };
        self.node(Node { span, kind }, false)
    }

    fn reject(&mut self, objection: Objection, range: Range<usize>) {
        let mut problem = Problem::error(objection.code, self.path, range, objection.message).hint(objection.hint);
        if let Some(replacement) = objection.replacement {
            problem = problem.fix(replacement);
        }
        self.problems.push(problem);
    }

    fn key(&mut self, text: &str, plain: bool, range: Range<usize>) -> bool {
        if plain {
            self.check_key(text, &range);
        }
        let Some(Open::Mapping { key, seen, skip, .. }) = self.stack.last_mut() else { return false };
        let first = seen.get(text).cloned();
        seen.entry(text.to_owned()).or_insert_with(|| range.clone());
        *skip = first.is_some();
        *key = Some((text.to_owned(), range.clone()));
        if let Some(first) = first {
            let problem = Problem::error(
                "duplicate-key",
                self.path,
                range,
                format!("the key `{text}` appears twice in this mapping"),
            )
            .label("again here")
            .hint("keep one; other readers would silently take the last")
            .related(None, first, "first here");
            self.problems.push(problem);
        }
        true
    }

    fn check_key(&mut self, text: &str, range: &Range<usize>) {
        if text == "<<" {
            let hint = "let the record extend another (`extends:`), where the order of values is defined";
            return self.object(range.clone(), "merge-key", "merge keys (`<<`) are not used in the database", hint);
        }
        match scalar::plain(text) {
            Ok(NodeKind::Text(_) | NodeKind::Integer(_)) => {}
            Ok(NodeKind::Float(_)) => {
                let message = format!("the key `{text}` is a number with a point, so readers see 1.10 as 1.1");
                self.problems.push(
                    Problem::error("quote-required", self.path, range.clone(), message)
                        .hint("quote it")
                        .fix(format!("\"{text}\"")),
                );
            }
            Ok(_) => self.object(
                range.clone(),
                "key-not-text",
                &format!("the key `{text}` is not text"),
                "quote it, or name the key",
            ),
            Err(objection) => self.reject(objection, range.clone()),
        }
    }

    /// Adds a finished value where it belongs; `hole` stands for one that was refused.
    fn node(&mut self, node: Node, hole: bool) -> bool {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            self.object(
                node.span,
                "too-many-nodes",
                &format!("more than {MAX_NODES} values in one file"),
                "split the file",
            );
            return false;
        }
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Open::Sequence { items, .. }) => items.push(node),
            Some(Open::Mapping { entries, key, skip, .. }) => match key.take() {
                Some((key, key_span)) if !*skip => entries.push(Entry { key, key_span, value: node }),
                Some(_) => *skip = false,
                None if hole => *key = Some((String::new(), node.span)),
                None => *key = Some((String::new(), node.span)),
            },
        }
        true
    }
}
