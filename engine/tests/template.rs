//! Chat templates against texts that Python's jinja2 made (`templates/make_cases.py`).

use std::path::{Path, PathBuf};

use engine::tokenizer::{ChatInput, ChatTemplate, TemplateError};
use serde_json::{Map, Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates")
}

fn template(text: &str) -> Result<ChatTemplate, TemplateError> {
    ChatTemplate::new("t.jinja", &[("default".to_owned(), text.to_owned())], Some("<s>"), Some("</s>"))
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
    let error =
        ChatTemplate::new("t", &[("tool_use".to_owned(), String::new())], None, None).err().expect("has no default");
    assert_eq!(error.to_string(), "t: chat template `default`: is missing");
}

#[test]
fn an_endless_template_ends() {
    let text =
        "{% macro again(n) %}{% for i in range(1000) %}{{ again(n + 1) }}{% endfor %}{% endmacro %}{{ again(0) }}";
    assert!(matches!(render(text, &json!([]), &Map::new()), Err(TemplateError::Failed(_))));
    let loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
    let error = render(loops, &json!([]), &Map::new()).expect_err("runs out of fuel").to_string();
    assert!(error.contains("fuel"), "{error}");
}

#[test]
fn tools_choose_their_template() {
    let named = [("default".to_owned(), "plain".to_owned()), ("tool_use".to_owned(), "{{ tools[0].name }}".to_owned())];
    let template = ChatTemplate::new("t", &named, None, None).unwrap_or_else(|error| panic!("{error}"));
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
