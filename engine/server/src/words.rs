//! What a decoder says, for people who wrote no program.

/// Replaces the names of Rust types in a decoder's message.
pub fn in_words(message: &str) -> String {
    [
        ("expected f32", "expected a number"),
        ("expected f64", "expected a number"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number of 64 bits from 0 on"),
        ("expected i32", "expected a whole number from -2147483648 to 2147483647"),
        ("expected i64", "expected a whole number of 64 bits"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected an object"),
        ("expected a boolean", "expected true or false"),
        ("unknown variant", "there is no"),
    ]
    .iter()
    .fold(message.to_owned(), |message, (from, to)| message.replace(from, to))
}
