//! One Python file: read with limits, parsed, and walked.

use std::ops::Range;
use std::path::{Path, PathBuf};

use capdb::files::read_up_to;
use tree_sitter::{Node, Parser, Tree};

/// Largest file that is read. The files in question have a few hundred lines.
const MAX_BYTES: u64 = 4 << 20;

/// Why a source cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{0}: there is no such file in this installation")]
    Missing(String),
    #[error("{0}: leads out of the installation through a symbolic link, so it is not read")]
    OutOfTree(String),
    #[error("{0}: is not a plain file")]
    NotAFile(String),
    #[error("{path}: has more than {limit} bytes, which no file of these projects has")]
    TooLarge { path: String, limit: u64 },
    #[error("{path}: is not UTF-8 ({why})")]
    Encoding { path: String, why: String },
    #[error("{path}:{line}: is not valid Python")]
    Syntax { path: String, line: usize },
    #[error("{path}:{line}: {what}")]
    Shape { path: String, line: usize, what: String },
    #[error("{path}: {cause}")]
    Io { path: String, cause: std::io::Error },
}

/// A parsed file.
pub struct Source {
    /// Below site-packages, with `/`.
    pub path: String,
    text: String,
    tree: Tree,
}

impl Source {
    /// Reads `relative` below `root`, which must be canonical.
    pub fn read(root: &Path, relative: &str) -> Result<Self, SourceError> {
        Self::parse(relative, read(root, relative)?.1)
    }

    /// Parses the bytes of a file.
    pub fn parse(path: &str, bytes: Vec<u8>) -> Result<Self, SourceError> {
        let path = path.to_owned();
        if bytes.len() as u64 > MAX_BYTES {
            return Err(SourceError::TooLarge { path, limit: MAX_BYTES });
        }
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return Err(SourceError::Encoding { path, why: error.utf8_error().to_string() }),
        };
        if let Some(name) = declared_encoding(&text).filter(|name| !is_utf8(name)) {
            return Err(SourceError::Encoding { path, why: format!("it declares `{name}`") });
        }
        let mut parser = Parser::new();
        let unusable = |what: &str| SourceError::Shape { path: path.clone(), line: 1, what: what.to_owned() };
        parser
            .set_language(&tree_sitter_python::LANGUAGE.into())
            .map_err(|error| unusable(&format!("the Python grammar does not fit the parser: {error}")))?;
        let tree = parser.parse(&text, None).ok_or_else(|| unusable("the parser gave no tree"))?;
        let source = Self { path, text, tree };
        if source.tree.root_node().has_error() {
            let line = source.nodes().find(|node| node.is_error() || node.is_missing()).map_or(1, line);
            return Err(SourceError::Syntax { path: source.path, line });
        }
        Ok(source)
    }

    /// The whole file.
    pub fn whole(&self) -> &str {
        &self.text
    }

    pub fn root(&self) -> Node<'_> {
        self.tree.root_node()
    }

    /// Every node, in the order of the text.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        descendants(self.root())
    }

    pub fn text(&self, node: Node<'_>) -> &str {
        self.slice(node.byte_range())
    }

    pub fn slice(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or("")
    }

    /// `file:line` of a node.
    pub fn at(&self, node: Node<'_>) -> String {
        format!("{}:{}", self.path, line(node))
    }

    pub fn shape(&self, node: Node<'_>, what: impl Into<String>) -> SourceError {
        SourceError::Shape { path: self.path.clone(), line: line(node), what: what.into() }
    }

    /// Assignments to a name: of the module, or of the body of a class. Blocks under `if`, `else`, `try` and the like belong to
    /// it; functions and classes inside do not.
    pub fn assignments(&self, class: Option<&str>, name: &str) -> Vec<Node<'_>> {
        let body = match class {
            None => Some(self.root()),
            Some(class) => children(self.root())
                .into_iter()
                .find(|node| {
                    node.kind() == "class_definition"
                        && node.child_by_field_name("name").is_some_and(|node| self.text(node) == class)
                })
                .and_then(|node| node.child_by_field_name("body")),
        };
        let is_it = |node: &Node<'_>| {
            node.kind() == "assignment" && node.child_by_field_name("left").is_some_and(|left| self.text(left) == name)
        };
        body.map(|body| statements(body, class.is_none())).unwrap_or_default().into_iter().filter(is_it).collect()
    }
}

/// Where `relative` lies below `root`, and its bytes: a plain file inside the tree, and no larger than is read.
pub fn read(root: &Path, relative: &str) -> Result<(PathBuf, Vec<u8>), SourceError> {
    let io = |cause: std::io::Error| match cause.kind() {
        std::io::ErrorKind::NotFound => SourceError::Missing(relative.to_owned()),
        _ => SourceError::Io { path: relative.to_owned(), cause },
    };
    let path = root.join(relative).canonicalize().map_err(io)?;
    if !path.starts_with(root) {
        return Err(SourceError::OutOfTree(relative.to_owned()));
    }
    if !path.metadata().map_err(io)?.is_file() {
        return Err(SourceError::NotAFile(relative.to_owned()));
    }
    let bytes = read_up_to(&path, MAX_BYTES + 1).map_err(io)?;
    Ok((path, bytes))
}

/// Parts of the statements of a block, those of nested blocks too, in the order of the text.
fn statements(body: Node<'_>, nested: bool) -> Vec<Node<'_>> {
    let (mut open, mut found) = (children(body), Vec::new());
    open.reverse();
    while let Some(node) = open.pop() {
        match node.kind() {
            "expression_statement" => found.extend(children(node)),
            "function_definition" | "class_definition" | "decorated_definition" => {}
            _ if nested => open.extend(children(node).into_iter().rev()),
            _ => {}
        }
    }
    found
}

/// Line of a node, from 1.
pub fn line(node: Node<'_>) -> usize {
    node.start_position().row + 1
}

pub fn children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor).collect()
}

/// A node and everything below it, in the order of the text, without recursion: depth is the input's choice.
pub fn descendants(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    let mut open = vec![node];
    std::iter::from_fn(move || {
        let node = open.pop()?;
        let mut cursor = node.walk();
        let mut below: Vec<_> = node.children(&mut cursor).collect();
        below.reverse();
        open.extend(below);
        Some(node)
    })
}

/// The nearest enclosing node of a kind.
pub fn enclosing<'a>(node: Node<'a>, kind: &str) -> Option<Node<'a>> {
    std::iter::successors(node.parent(), Node::parent).find(|node| node.kind() == kind)
}

/// The encoding that a comment in the first two lines declares (PEP 263).
fn declared_encoding(text: &str) -> Option<&str> {
    text.lines().take(2).filter(|line| line.trim_start().starts_with('#')).find_map(|line| {
        let rest = &line[line.find("coding")? + "coding".len()..];
        let rest = rest.strip_prefix([':', '='])?.trim_start();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).unwrap_or(rest.len());
        (end > 0).then(|| &rest[..end])
    })
}

fn is_utf8(name: &str) -> bool {
    matches!(
        name.to_ascii_lowercase().replace('_', "-").as_str(),
        "utf-8" | "utf8" | "utf-8-sig" | "ascii" | "us-ascii"
    )
}
