//! What transformers adds to jinja2, and Python's way to print values.

use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind, Output, State};

use super::{clock, python};

/// The message of `raise_exception`, kept as the cause of the error that ends the rendering.
#[derive(Debug)]
pub(super) struct Raised(pub String);

impl fmt::Display for Raised {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

pub(super) fn install(environment: &mut Environment) -> Result<(), Error> {
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(print);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("tojson", tojson);
    Ok(())
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// The present time, UTC.
fn strftime_now(format: &str) -> Result<String, Error> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    clock::format(now.as_secs(), format).map_err(|message| Error::new(ErrorKind::InvalidOperation, message))
}

/// `json.dumps` as transformers calls it.
fn tojson(state: &State, value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    let escaped: Option<bool> = options.get("ensure_ascii")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    options.assert_all_used()?;
    let style = python::Style {
        indent: indent.map(|indent| indent.min(32)),
        sorted: sorted.unwrap_or(false),
        escaped: escaped.unwrap_or(false),
        separators: match separators.as_deref() {
            Some([item, key]) => Some((item.clone(), key.clone())),
            _ => None,
        },
    };
    Ok(Value::from_safe_string(python::json(state, &value, &style)?))
}

/// Prints a value as Python's `str` does.
fn print(output: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.is_undefined() {
        return Ok(());
    }
    match value.as_str() {
        Some(text) => output.write_str(text),
        None => output.write_str(&python::text(state, value)?),
    }
    .map_err(Error::from)
}
