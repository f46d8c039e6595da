#!/usr/bin/env python3
"""Renders the templates beside this file with jinja2, set up as transformers does it, and writes `cases.json`.

    pip install jinja2 && python make_cases.py

`smollm2` and `qwen3` (Apache-2.0) and `deepseek-v3` (MIT) are the templates of those checkpoints; `mistral` is written
after theirs; `features` exercises what templates use of Python's Jinja.
"""

import json
from pathlib import Path

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = Path(__file__).parent


class Generation(Extension):
    """Prints the body of `{% generation %}`, as transformers' extension does."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    result = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    result.filters["tojson"] = tojson
    result.globals["raise_exception"] = raise_exception
    return result


def turn(role, content, **further):
    return {"role": role, "content": content, **further}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Temperature & wind at a place in \"°C\" <now>",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 1.5}}}
DATA = {
    "list": [3, 1, 2],
    "text": "a \"quoted\" \\ line\n\té \u0001 🙂 <b>&'",
    "flag": True,
    "nothing": None,
    "small": 0.00001,
    "large": 1e20,
    "nested": {"empty": [], "none": {}},
}
CONVERSATIONS = {
    "one": [turn("user", "Hello")],
    "system": [turn("system", "Be brief."), turn("user", "Hi"), turn("assistant", " Hello! "), turn("user", "1+1?\n")],
    "thinking": [turn("user", "a"), turn("assistant", "<think>\nhm\n</think>\n\nb"), turn("user", "c")],
    "tools": [turn("user", "Weather?"), turn("assistant", "", tool_calls=[CALL]), turn("tool", "20"), turn("user", "And?")],
    "wrong order": [turn("assistant", "Hello"), turn("user", "Hi")],
}


def case(name, conversation, tools=None, prompt=True, variables=None):
    variables = variables or {}
    template = environment().from_string((HERE / f"{name}.jinja").read_text())
    result = {"template": name, "messages": CONVERSATIONS[conversation], "tools": tools,
              "add_generation_prompt": prompt, "variables": variables}
    try:
        result["text"] = template.render(messages=CONVERSATIONS[conversation], tools=tools, documents=None,
                                         add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>", **variables)
    except TemplateError as error:
        result["refused"] = str(error)
    return result


def main():
    cases = []
    for name in ["smollm2", "qwen3", "deepseek-v3", "mistral"]:
        cases += [case(name, conversation) for conversation in ["one", "system", "thinking", "wrong order"]]
        cases.append(case(name, "one", prompt=False))
    cases.append(case("qwen3", "tools", tools=[WEATHER]))
    cases.append(case("qwen3", "one", variables={"enable_thinking": False}))
    cases.append(case("features", "system", variables={"data": DATA}))
    (HERE / "cases.json").write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
