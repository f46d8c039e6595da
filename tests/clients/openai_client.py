"""The openai package against a server. usage: openai_client.py URL"""

import sys

import openai

URL = sys.argv[1]
client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
MODEL = client.models.list().data[0].id
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]


def check(condition, what):
    if not condition:
        sys.exit(f"openai: {what}")


def chat():
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=MESSAGES, max_completion_tokens=8, temperature=0, user="me", metadata={"a": "b"}
    )
    ignored = raw.headers["archway-ignored"].split(", ")
    check(sorted(ignored) == ["metadata", "user"], f"archway-ignored is {ignored}")
    answer = raw.parse()
    check(answer.choices[0].message.role == "assistant", "the role is wrong")
    check(answer.choices[0].finish_reason in ("stop", "length"), "the finish reason is wrong")
    usage = answer.usage
    check(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, "the usage does not add up")
    return answer.choices[0].message.content, usage


def stream(text, usage):
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            max_completion_tokens=8,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    parts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    check("".join(parts) == text, f"the stream says {parts}, the whole answer {text!r}")
    check(chunks[-1].usage.completion_tokens == usage.completion_tokens, "the stream's usage differs")


def helper():
    """The package's own accumulator of streams."""
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, max_completion_tokens=8) as events:
        for _ in events:
            pass
        try:
            final = events.get_final_completion()
        except openai.LengthFinishReasonError as error:
            final = error.completion
    check(final.choices[0].finish_reason in ("stop", "length"), "the accumulated stream has no end")


def logprobs():
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_completion_tokens=4, temperature=0, logprobs=True, top_logprobs=2, seed=1
    )
    tokens = answer.choices[0].logprobs.content
    check(len(tokens) == answer.usage.completion_tokens, "there is not one log-probability per token")
    check(all(token.logprob <= 0 and len(token.top_logprobs) <= 2 for token in tokens), "log-probabilities are wrong")


def completions():
    answer = client.completions.create(model=MODEL, prompt=["one", "two"], max_tokens=3, n=2, temperature=0, echo=True)
    check([choice.index for choice in answer.choices] == [0, 1, 2, 3], "the choices are misnumbered")
    check(answer.choices[2].text.startswith("two"), "the prompt is not echoed")
    ids = client.completions.create(model=MODEL, prompt=[[5, 6, 7], [8]], max_tokens=2, extra_body={"ignore_eos": True})
    check(ids.usage.prompt_tokens == 4 and ids.usage.completion_tokens == 4, "token ids are miscounted")


def refused(kind, param, **fields):
    try:
        client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, **fields})
    except kind as error:
        check(error.param == param, f"the refused field is {error.param}, not {param}")
        return
    check(False, f"{param} was not refused")


def errors():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    refused(openai.BadRequestError, "tools", tools=[tool])
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    refused(
        openai.BadRequestError,
        "messages[0].content[0].image_url",
        messages=[{"role": "user", "content": [image]}],
    )
    refused(openai.BadRequestError, "response_format", response_format={"type": "json_object"})
    refused(openai.BadRequestError, "temprature", extra_body={"temprature": 1})
    refused(openai.BadRequestError, "temperature", temperature=-1)
    refused(openai.NotFoundError, "model", model="no-such-model")


text, usage = chat()
stream(text, usage)
helper()
logprobs()
completions()
errors()
print("openai: all checks passed")
