//! Chat templates against texts that Python's jinja2 made (`templates/make_cases.py`).

use std::path::{Path, PathBuf};

use engine::tokenizer::{ChatInput, ChatTemplate, TemplateError, TemplateSource};
use serde_json::{Map, Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates")
}

fn template(text: &str) -> Result<ChatTemplate, TemplateError> {
    named("t.jinja", &[("default", text)])
}

fn named(path: &str, templates: &[(&str, &str)]) -> Result<ChatTemplate, TemplateError> {
    ChatTemplate::new(TemplateSource {
        path: path.to_owned(),
        templates: templates.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
        bos_token: Some("<s>".to_owned()),
        eos_token: Some("</s>".to_owned()),
    })
}

fn render(text: &str, messages: &Value, variables: &Map<String, Value>) -> Result<String, TemplateError> {
    template(text)?.render(&ChatInput { messages, tools: None, add_generation_prompt: true, variables })
}

#[test]
fn texts_are_those_of_jinja2() {
    let cases = std::fs::read_to_string(folder().join("cases.json")).expect("fixture exists");
    let cases: Vec<Value> = serde_json::from_str(&cases).expect("is JSON");
    assert!(cases.len() > 20);
    for case in cases {
        let name = case["template"].as_str().expect("is a string");
        let source = std::fs::read_to_string(folder().join(format!("{name}.jinja"))).expect("fixture exists");
        let result = template(&source).unwrap_or_else(|error| panic!("{name}: {error}")).render(&ChatInput {
            messages: &case["messages"],
            tools: Some(&case["tools"]).filter(|tools| !tools.is_null()),
            add_generation_prompt: case["add_generation_prompt"] == true,
            variables: case["variables"].as_object().expect("is an object"),
        });
        match (result, case["text"].as_str(), case["refused"].as_str()) {
            (Ok(text), Some(expected), _) => assert_eq!(text, expected, "{name}"),
            (Err(TemplateError::Refused(message)), _, Some(expected)) => assert_eq!(message, expected, "{name}"),
            (result, ..) => panic!("{name}: {result:?}"),
        }
    }
}

#[test]
fn errors_name_the_file_and_the_line() {
    let error = template("line\n{% if x %}\n{{ x }}").err().expect("is open").to_string();
    assert!(
        error.starts_with("t.jinja: chat template `default`: syntax error: ") && error.contains("(line 3)"),
        "{error}"
    );
    let error = render("a\n{{ messages[0].content + 1 }}", &json!([{"content": "x"}]), &Map::new()).expect_err("fails");
    let TemplateError::Failed(message) = &error else { panic!("{error:?}") };
    assert!(message.contains("(line 2)"), "{message}");
    let error = render("{{ nothing(1) }}", &json!([]), &Map::new()).expect_err("fails").to_string();
    assert!(error.contains("the chat template fails on the conversation: ") && error.contains("nothing"), "{error}");
    let error = named("t", &[("tool_use", "")]).err().expect("has no default");
    assert_eq!(error.to_string(), "t: chat template `default`: is missing");
}

/// Loops without end, growth without end and single operations that make more than memory holds.
const ENDLESS: [(&str, &str); 12] = [
    (
        "macros",
        "{% macro again(n) %}{% for i in range(1000) %}{{ again(n + 1) }}{% endfor %}{% endmacro %}{{ again(0) }}",
    ),
    ("loops", "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
    ("range", "{% for i in range(10 ** 9) %}{{ i }}{% endfor %}"),
    (
        "doubling",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    ),
    (
        "tilde",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    ),
    ("repetition", "{{ (('a' * 99999) * 99999) | length }}"),
    ("replacement", "{% set x = 'a' * 99999 %}{{ x | replace('a', x) | length }}"),
    ("method", "{% set x = 'a' * 99999 %}{{ x.replace('a', x) | length }}"),
    ("joins", "{% set x = 'a' * 99999 %}{{ range(99999) | join(x) | length }}"),
    ("width", "{{ '%999999999999d' | format(1) | length }}"),
    ("json", "{{ ([1] * 999999999999) | tojson | length }}"),
    (
        "shared lists",
        "{% set ns = namespace(x=['a']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    ),
];

/// Under a bound of the address space, so that a test without an end is one that fails.
#[test]
fn an_endless_template_ends() {
    let most = rustix::process::Rlimit { current: Some(8 << 30), maximum: Some(8 << 30) };
    rustix::process::setrlimit(rustix::process::Resource::As, most).expect("a limit can be set");
    for (what, text) in ENDLESS {
        let error = render(text, &json!([]), &Map::new()).expect_err(what);
        let said = error.to_string();
        let bounds = ["takes more than 10000000 steps (line 1)", "too large", "too many", "recursion limit exceeded"];
        assert!(bounds.iter().any(|bound| said.contains(bound)), "{what}: {said}");
        if matches!(error, TemplateError::Bound { .. }) {
            assert!(said.starts_with("chat template `default`: ") && said.contains("send less"), "{what}: {said}");
        }
        assert!(!said.contains("t.jinja"), "a client reads this: {said}");
    }
}

#[test]
fn a_text_has_a_longest_length() {
    let text = "{% set x = 'a' * 33554432 %}{{ x }}{{ x }}";
    assert_eq!(render(text, &json!([]), &Map::new()).map(|text| text.len()), Ok(64 << 20));
    let error = render(&format!("{text}b"), &json!([]), &Map::new()).expect_err("is too long").to_string();
    assert!(error.contains("67108865 bytes of text"), "{error}");
}

#[test]
fn tools_choose_their_template() {
    let template = named("t", &[("default", "plain"), ("tool_use", "{{ tools[0].name }}")]);
    let template = template.unwrap_or_else(|error| panic!("{error}"));
    let (messages, variables) = (json!([]), Map::new());
    let render = |tools: Option<&Value>| {
        template.render(&ChatInput { messages: &messages, tools, add_generation_prompt: true, variables: &variables })
    };
    assert_eq!(render(Some(&json!([{"name": "search"}]))).as_deref(), Ok("search"));
    assert_eq!(render(Some(&json!([]))).as_deref(), Ok("plain"));
    assert_eq!(render(None).as_deref(), Ok("plain"));
}

#[test]
fn variables_and_dates() {
    let mut variables = Map::new();
    variables.insert("bos_token".to_owned(), json!("<other>"));
    let text = "{{ bos_token }}{{ eos_token }}{{ strftime_now('%Y') | length }}";
    assert_eq!(render(text, &json!([]), &variables).as_deref(), Ok("<other></s>4"));
}
