//! Statements that only training needs.

/// transformers marks the assistant's part of a text by `{% generation %}` and `{% endgeneration %}`. They print
/// nothing; a condition that always holds keeps their effect on white space.
pub(super) fn without_generation(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        result.push_str(before);
        let Some(end) = tag.find("%}").map(|end| end + 2) else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(end);
        let word =
            tag[2..tag.len() - 2].trim_matches(|character: char| character.is_whitespace() || "+-".contains(character));
        result.push_str(&match word {
            "generation" => tag.replace("generation", "if true"),
            "endgeneration" => tag.replace("endgeneration", "endif"),
            _ => tag.to_owned(),
        });
        rest = after;
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::without_generation;

    #[test]
    fn tags_become_conditions() {
        let source = "a{%- generation -%}{{ x }}{% endgeneration %}{% if generation %}{% endif %}{% open";
        let expected = "a{%- if true -%}{{ x }}{% endif %}{% if generation %}{% endif %}{% open";
        assert_eq!(without_generation(source), expected);
    }
}
