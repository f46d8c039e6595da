"""A thousand rude clients: they hang up, break off streams, send rubbish, and read slowly.

usage: rude.py URL [REQUESTS [SEED [PREEMPTIONS]]]      default: 1000 requests, seed 1, no preemption expected

Afterwards nothing may run or wait, no page of the cache may be lost, and the answers must be those of before. Every
whole answer amid the storm must be that of before, too. A seed fixes what each client does, not when.
"""

import asyncio
import json
import random
import re
import sys
import urllib.request
from urllib.parse import urlsplit

URL = sys.argv[1]
REQUESTS = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
PREEMPTIONS = int(sys.argv[4]) if len(sys.argv) > 4 else 0
AT_ONCE = 48
CHAT = "/v1/chat/completions"
HOST, PORT = urlsplit(URL).hostname, urlsplit(URL).port
QUESTIONS = ["What is the capital of France?", "Name three fruits.", "Why is the sky blue?", "Say hello.", "Count to 9."]


def get(path):
    with urllib.request.urlopen(URL + path, timeout=60) as response:
        return response.read().decode()


MODEL = json.loads(get("/v1/models"))["data"][0]["id"]


def question(text, **more):
    messages = [{"role": "user", "content": text}]
    return {"model": MODEL, "messages": messages, "max_tokens": 12, "temperature": 0, **more}


def long(text):
    """Four pages of the cache beside the prompt's, whatever the model wants to say."""
    return question(text, max_tokens=64, ignore_eos=True)


class Connection:
    """One request on a connection of its own."""

    def __init__(self, body, path=CHAT):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\ncontent-type: application/json\r\n"
        self.bytes = f"{head}content-length: {len(data)}\r\n\r\n".encode() + data

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(HOST, PORT)
        return self

    async def __aexit__(self, *_):
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass

    async def send(self, count=None):
        self.writer.write(self.bytes[:count])
        await self.writer.drain()

    async def rest(self, pause=0.0):
        """Status and body, read in small pieces with a pause after each."""
        text = b""
        while piece := await self.reader.read(256 if pause else 1 << 16):
            text += piece
            await asyncio.sleep(pause)
        head, _, body = text.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" in head.lower():
            body = whole(body)
        return int(head.split()[1]), body.decode()


def whole(chunks):
    """The body of a chunked response."""
    body = b""
    while chunks:
        length, _, chunks = chunks.partition(b"\r\n")
        body, chunks = body + chunks[: int(length, 16)], chunks[int(length, 16) + 2 :]
    return body


async def ask(body, path=CHAT, pause=0.0):
    async with Connection(body, path) as connection:
        await connection.send()
        status, text = await connection.rest(pause)
    if status != 200:
        sys.exit(f"{status} for {json.dumps(body)[:200]}: {text}")
    return text


async def answers(body):
    return [choice["message"]["content"] for choice in json.loads(await ask(body))["choices"]]


async def hang_up(dice, _):
    async with Connection(question(f"{dice.random()}", ignore_eos=True, max_tokens=200)) as connection:
        await connection.send()
        await asyncio.sleep(dice.random() * 0.3)


async def break_off(dice, _):
    body = question(dice.choice(QUESTIONS), ignore_eos=True, max_tokens=200, stream=True, n=dice.randint(1, 3))
    async with Connection(body) as connection:
        await connection.send()
        for _ in range(dice.randint(0, 4)):
            await connection.reader.read(200)


def spoiled(dice):
    """A body that is not JSON, or JSON that asks for what cannot be."""
    if dice.random() < 0.5:
        wrong = [{"temperature": -1}, {"n": 0}, {"max_tokens": "many"}, {"messages": {}}, {"tools": [1]}, {"nn": 1}]
        return json.dumps(question("x", **dice.choice(wrong))).encode()
    data = bytearray(json.dumps(question("x", n=dice.randint(1, 3))).encode())
    data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data[: dice.randrange(1, len(data))])


async def rubbish(dice, _):
    data = spoiled(dice)
    async with Connection(data) as connection:
        await connection.send()
        status, text = await connection.rest()
    if not 400 <= status < 500 or "error" not in json.loads(text):
        sys.exit(f"{status} for {data}: {text}")


async def half(dice, _):
    async with Connection(question("x")) as connection:
        await connection.send(dice.randrange(len(connection.bytes)))
        await asyncio.sleep(dice.random() * 0.1)


async def slow(dice, known):
    text = dice.choice(QUESTIONS)
    expected, _ = known[text]
    events = await ask(question(text, stream=True), pause=0.005)
    lines = [line[6:] for line in events.splitlines() if line.startswith("data: ")]
    if lines.pop() != "[DONE]":
        sys.exit(f"a stream does not end with [DONE]: {events}")
    deltas = [json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines]
    if "".join(deltas) != expected:
        sys.exit(f"{text!r} amid the storm: {''.join(deltas)!r}, before: {expected!r}")


async def polite(dice, known):
    text, count = dice.choice(QUESTIONS), dice.randint(1, 3)
    same(text, await answers(question(text, n=count)), [known[text][0]] * count)


async def patient(dice, known):
    text = dice.choice(QUESTIONS)
    same(text, await answers(long(text)), [known[text][1]])


def same(text, got, expected):
    if got != expected:
        sys.exit(f"{text!r} now: {got}, before the storm: {expected}")


async def all_answers():
    """The short and the long answer to each question, asked one at a time."""
    return {text: (await answers(question(text)) + await answers(long(text))) for text in QUESTIONS}


async def storm(known):
    places, kinds = asyncio.Semaphore(AT_ONCE), [hang_up, break_off, rubbish, half, slow, polite, patient]
    counts = {kind.__name__: 0 for kind in kinds}

    async def client(number):
        dice = random.Random(SEED * 1_000_003 + number)
        kind = dice.choice(kinds)
        async with places:
            await kind(dice, known)
        counts[kind.__name__] += 1

    await asyncio.gather(*(client(number) for number in range(REQUESTS)))
    return counts


def level(name):
    return float(re.search(rf"^vllm:{name}(?:\{{.*\}})? (\S+)$", get("/metrics"), re.MULTILINE).group(1))


async def settle():
    """Waits until nothing runs, waits or holds a page."""
    names = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"]
    for _ in range(300):
        levels = {name: level(name) for name in names}
        if not any(levels.values()):
            return
        await asyncio.sleep(0.1)
    sys.exit(f"half a minute after the last client: {levels}")


async def fill_the_cache():
    """A sequence that needs every page that there is, or the longest one that the model takes."""
    info = json.loads(get("/server_info"))
    room, vocabulary = info["max_total_tokens"], json.loads(get("/model_info"))["vocabulary"]
    length = min(room, info["context_length"])
    prompt = [(at * 7919 + 13) % vocabulary for at in range(length - 2)]
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 2, "ignore_eos": True}
    usage = json.loads(await ask(body, "/v1/completions"))["usage"]
    if usage["total_tokens"] != length:
        sys.exit(f"a sequence of {length} tokens has {usage}")
    return f"a sequence of {length} of the cache's {room} tokens fits"


async def main():
    known = await all_answers()
    counts = await storm(known)
    await settle()
    for text, answer in (await all_answers()).items():
        same(text, answer, known[text])
    preempted = level("num_preemptions_total")
    if preempted < PREEMPTIONS:
        sys.exit(f"{preempted:.0f} sequences gave up their pages, expected at least {PREEMPTIONS}")
    filled = await fill_the_cache()
    await settle()
    kinds = ", ".join(f"{count} {name}" for name, count in counts.items())
    print(f"rude: {REQUESTS} requests (seed {SEED}: {kinds}), {preempted:.0f} preemptions;")
    print(f"nothing runs or waits, no page is held, {filled}, and the answers are those of before")


asyncio.run(main())
