//! Python literals with constant arithmetic: `{9: {2: 64 * MiB}}`. Nothing is executed.

use std::fmt;

use tree_sitter::Node;

use super::python::{Source, SourceError, children};

/// How deep expressions and names may lead. Real tables need four.
const MAX_DEPTH: usize = 24;

/// A value that the source writes out.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    Integer(i64),
    Float(f64),
    Text(String),
    /// A list, tuple or set.
    Sequence(Vec<Literal>),
    /// Key, value, and line of the key.
    Mapping(Vec<(Literal, Literal, usize)>),
}

impl Literal {
    pub fn as_number(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
            Self::Integer(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: Vec<String>| items.join(", ");
        match self {
            Self::Integer(number) => number.fmt(formatter),
            Self::Float(number) => number.fmt(formatter),
            Self::Text(text) => write!(formatter, "\"{text}\""),
            Self::Sequence(items) => write!(formatter, "({})", list(items.iter().map(Self::to_string).collect())),
            Self::Mapping(rows) => {
                let row = |(key, value, _): &(Self, Self, usize)| format!("{key}: {value}");
                write!(formatter, "{{{}}}", list(rows.iter().map(row).collect()))
            }
        }
    }
}

impl Source {
    /// The value of an expression; names are resolved among the assignments of the same module.
    pub fn evaluate(&self, node: Node<'_>) -> Result<Literal, SourceError> {
        self.evaluate_at(node, 0)
    }

    /// The value of the one assignment to a name, and its node.
    pub fn constant(&self, class: Option<&str>, name: &str) -> Result<(Literal, Node<'_>), SourceError> {
        let node = self.only_assignment(class, name)?;
        let right = node.child_by_field_name("right").ok_or_else(|| self.shape(node, "is not assigned a value"))?;
        Ok((self.evaluate(right)?, node))
    }

    fn only_assignment(&self, class: Option<&str>, name: &str) -> Result<Node<'_>, SourceError> {
        match self.assignments(class, name).as_slice() {
            [one] => Ok(*one),
            [] => Err(self.shape(self.root(), format!("`{name}` is not assigned where it is expected"))),
            [_, second, ..] => Err(self.shape(*second, format!("`{name}` is assigned more than once"))),
        }
    }

    fn evaluate_at(&self, node: Node<'_>, depth: usize) -> Result<Literal, SourceError> {
        if depth > MAX_DEPTH {
            return Err(self.shape(node, "the expression is nested too deeply"));
        }
        let unknown = || self.shape(node, format!("`{}` is not a constant that can be read", excerpt(self.text(node))));
        match node.kind() {
            "integer" => integer(self.text(node)).map(Literal::Integer).ok_or_else(unknown),
            "float" => self.text(node).replace('_', "").parse().map(Literal::Float).map_err(|_| unknown()),
            "string" => self.string(node).map(Literal::Text).ok_or_else(unknown),
            "parenthesized_expression" => match children(node).as_slice() {
                [inner] => self.evaluate_at(*inner, depth + 1),
                _ => Err(unknown()),
            },
            "list" | "tuple" | "set" => {
                let items = children(node).into_iter().filter(|child| child.kind() != "comment");
                items.map(|child| self.evaluate_at(child, depth + 1)).collect::<Result<_, _>>().map(Literal::Sequence)
            }
            "dictionary" => self.dictionary(node, depth),
            "binary_operator" => self.arithmetic(node, depth)?.ok_or_else(unknown),
            "identifier" => {
                let assignment = self.only_assignment(None, self.text(node))?;
                let right = assignment.child_by_field_name("right").ok_or_else(unknown)?;
                self.evaluate_at(right, depth + 1)
            }
            _ => Err(unknown()),
        }
    }

    fn dictionary(&self, node: Node<'_>, depth: usize) -> Result<Literal, SourceError> {
        let mut rows: Vec<(Literal, Literal, usize)> = Vec::new();
        for pair in children(node).into_iter().filter(|child| child.kind() != "comment") {
            let (Some(key), Some(value)) = (pair.child_by_field_name("key"), pair.child_by_field_name("value")) else {
                return Err(self.shape(pair, "is not a `key: value` pair"));
            };
            let read = self.evaluate_at(key, depth + 1)?;
            if rows.iter().any(|(known, ..)| *known == read) {
                return Err(self.shape(key, format!("the key `{}` appears twice", excerpt(self.text(key)))));
            }
            rows.push((read, self.evaluate_at(value, depth + 1)?, super::python::line(key)));
        }
        Ok(Literal::Mapping(rows))
    }

    fn arithmetic(&self, node: Node<'_>, depth: usize) -> Result<Option<Literal>, SourceError> {
        let field = |name| node.child_by_field_name(name).ok_or_else(|| self.shape(node, "is not arithmetic"));
        let left = self.evaluate_at(field("left")?, depth + 1)?;
        let right = self.evaluate_at(field("right")?, depth + 1)?;
        let operator = self.text(field("operator")?);
        if let (Literal::Integer(a), Literal::Integer(b)) = (&left, &right) {
            let whole = match operator {
                "+" => a.checked_add(*b),
                "-" => a.checked_sub(*b),
                "*" => a.checked_mul(*b),
                "//" if *b > 0 => a.checked_div_euclid(*b),
                "**" => u32::try_from(*b).ok().and_then(|power| a.checked_pow(power)),
                "<<" => u32::try_from(*b).ok().filter(|shift| *shift < 40).and_then(|s| a.checked_mul(1 << s)),
                _ => None,
            };
            if operator != "/" {
                return Ok(whole.map(Literal::Integer));
            }
        }
        let (Some(a), Some(b)) = (left.as_number(), right.as_number()) else { return Ok(None) };
        Ok(match operator {
            "+" => Some(a + b),
            "-" => Some(a - b),
            "*" => Some(a * b),
            "/" if b != 0.0 => Some(a / b),
            _ => None,
        }
        .map(Literal::Float))
    }

    /// The content of a plain string: no prefix, no escapes.
    fn string(&self, node: Node<'_>) -> Option<String> {
        let text = self.text(node);
        let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(['\\', quote, '\n'])).then(|| inner.to_owned())
    }
}

fn integer(text: &str) -> Option<i64> {
    let digits = text.replace('_', "");
    match digits.get(..2) {
        Some("0x" | "0X") => i64::from_str_radix(&digits[2..], 16).ok(),
        _ => digits.parse().ok(),
    }
}

/// The start of a text, on one line.
pub fn excerpt(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
