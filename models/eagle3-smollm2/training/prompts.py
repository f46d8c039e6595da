"""User prompts: templates filled with slot values, and a guard that keeps evaluation prompts out of the training data."""

import json
import re
from pathlib import Path

FOLDER = Path(__file__).parent / "prompts"
SLOT = re.compile(r"\{(\w+)(?::(\d+)-(\d+))?\}")


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


def fill(template, slots, rng):
    """Every {slot} gets a value of its list, every {n:a-b} a whole number from a to b."""
    def value(match):
        name, low, high = match.groups()
        if low is not None:
            return str(rng.integers(int(low), int(high) + 1))
        return slots[name][rng.integers(len(slots[name]))]

    text = SLOT.sub(value, template)
    return text[0].upper() + text[1:]


def expand(per_category, rng):
    """Up to `per_category` different prompts of each category, templates drawn evenly; a shuffled list of texts."""
    slots, texts = load("slots"), {}
    for templates in load("templates").values():
        wanted = len(texts) + per_category
        for _ in range(4 * per_category):  # small categories run out of different fillings
            if len(texts) >= wanted:
                break
            texts[fill(templates[rng.integers(len(templates))], slots, rng)] = None
    texts = list(texts)
    return [texts[i] for i in rng.permutation(len(texts))]


def words(text):
    return frozenset(re.findall(r"[\w']+", text.lower()))


class Guard:
    """Refuses a prompt that is, contains, or shares more than `overlap` of its words (Jaccard) with a held-out prompt."""

    def __init__(self, paths, overlap=0.7):
        held = [entry["text"] for path in paths for entry in json.loads(Path(path).read_text())]
        self.held = [(text.lower().strip(" .?!"), words(text)) for text in held]
        self.overlap, self.refused = overlap, 0

    def admits(self, text):
        lowered, own = text.lower(), words(text)
        for held, theirs in self.held:
            sizes = sorted((len(own), len(theirs)))
            near = sizes[0] > self.overlap * sizes[1] and len(own & theirs) > self.overlap * len(own | theirs)
            if near or held in lowered:
                self.refused += 1
                return False
        return True
