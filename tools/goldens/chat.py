"""Writes chat-golden.json: conversations as transformers renders them with the templates of real models.

Usage: python chat.py FOLDER      (one folder for each model, as tools/test leaves them in target/chat-tokenizers)

The file holds `conversations`, in OpenAI's shape, and for each of `templates` a list of what became of them, in their order:
`text` and its `ids`, or `raised`, the template's own message, or neither, where transformers fails in some other way. The
ids are those of the `tokenizers` library for the tokenizer.json, without anything added.
"""
import copy
import json
import sys
from pathlib import Path

import jinja2
from tokenizers import Tokenizer
from transformers import AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "crates/whin/tests/fixtures/chat-golden.json"
MODELS = ["qwen3", "llama3_1", "gemma3", "deepseek_v3", "smollm2"]


def user(content, **more):
    return {"role": "user", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def calls(*functions, content=None, **more):
    made = [{"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (name, arguments) in enumerate(functions)]
    return {"role": "assistant", "content": content, "tool_calls": made, **more}


def result(content, n=0, **more):
    return {"role": "tool", "tool_call_id": f"call_{n}", "content": content, **more}


def function(name, properties, description="", **more):
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters, **more}}


WEATHER = function("get_weather", {"location": {"type": "string", "description": "City, e.g. Paris"}}, "The weather at a place")
ODD = function("odd", {
    "items": {"type": "array", "items": {"type": "number"}, "minItems": 0, "default": [1.0, -0.0, 1e-07, 1e+16, 12345678901234567890]},
    "enum": {"enum": [None, True, False, 0, 1.5, "<a href='x'>&amp;</a>", "\u2028\u0000\u007f\"\\/"]},
    "leer": {"type": ["string", "null"], "description": ""}, "größe": {"$ref": "#/x", "日本": "語😀"},
}, "Odd \"types\" {{ 7*7 }} {% raw %}\n\ttabs", strict=True)
PLAIN = [user("What is the capital of Japan?")]
THOUGHT = "<think>\nFirst this, then that.\n</think>\n\nThe answer is 4."


def conversations():
    """Pairs of a name and what goes into the prompt."""
    one = lambda name, messages, **more: (name, {"messages": messages, **more})
    asked = [user("Weather in Paris?"), calls(("get_weather", '{"location": "Paris"}'))]
    done = asked + [result('{"temperature": 21.50, "sky": "clear"}')]
    yield one("question", PLAIN)
    yield one("system", [system("You are terse."), *PLAIN])
    yield one("system-empty", [system(""), *PLAIN])
    yield one("second-turn", [user("Hi"), assistant("Hello! How can I help?"), user("2+2?")])
    yield one("third-turn", [system("S"), user("a"), assistant("b"), user("c"), assistant("d"), user("e")])
    yield one("answered", [user("Hi"), assistant("Hello.")])
    yield one("thinking-off", PLAIN, template_kwargs={"enable_thinking": False})
    yield one("thinking-on", PLAIN, template_kwargs={"enable_thinking": True})
    yield one("thinking-zero", PLAIN, template_kwargs={"enable_thinking": 0})
    yield one("thinking-null", PLAIN, template_kwargs={"enable_thinking": None})
    yield one("thinking-text", PLAIN, template_kwargs={"enable_thinking": "false"})
    yield one("thought-before", [user("2+2?"), assistant(THOUGHT), user("And 3+3?")])
    yield one("thought-last", [user("2+2?"), assistant(THOUGHT)])
    yield one("thought-apart", [user("2+2?"), assistant("4", reasoning_content="\nAdd them.\n"), user("3+3?")])
    yield one("thought-apart-last", [user("2+2?"), assistant("4", reasoning_content="Add them.")])
    yield one("thought-null", [user("2+2?"), assistant("4", reasoning_content=None), user("3+3?")])
    yield one("thought-odd", [user("x"), assistant("</think>a</think>b<think>c"), user("y")])
    yield one("tool-offered", PLAIN, tools=[WEATHER])
    yield one("tools-offered", [system("Use tools."), *PLAIN], tools=[WEATHER, function("now", {}), WEATHER])
    yield one("tool-odd", PLAIN, tools=[ODD])
    yield one("tool-called", asked, tools=[WEATHER])
    yield one("tool-answered", done, tools=[WEATHER])
    yield one("tool-answered-without-tools", done)
    yield one("tool-told", done + [assistant("It is 21.5 degrees.")], tools=[WEATHER])
    yield one("tool-told-next", done + [assistant("It is 21.5 degrees."), user("And in Rome?")], tools=[WEATHER])
    yield one("calls-two", [user("Paris, Rome?"), calls(("get_weather", '{"location":"Paris"}'), ("get_weather", '{"location":"Rome"}')),
                            result("21"), result("25", 1)], tools=[WEATHER])
    yield one("calls-three-with-text", [user("Go"), calls(("a", "{}"), ("b", '{"x": [1, {"y": null}]}'), ("c", '{"t": true, "f": false}'),
                                                          content="Let me see."), result("1"), result("", 1), result("[]", 2)])
    yield one("calls-in-a-row", [user("Go"), calls(("a", "{}")), result("1"), calls(("b", "{}")), result("2"), assistant("Done."), user("Thanks")])
    yield one("calls-after-thought", [user("Go"), calls(("a", '{"n": 1}'), content="<think>\nI need a.\n</think>\n\n"), result("1")], tools=[WEATHER])
    yield one("calls-thought-apart", [user("Go"), calls(("a", '{"n": 1}'), content="", reasoning_content="I need a."), result("1")])
    yield one("calls-numbers", [user("Go"), calls(("f", '{"a": 1.0, "b": 1.50, "c": 1e5, "d": 1E-7, "e": -0.0, "f": 123456789012345678901234567890, "g": -0, "h": 1e16, "i": 0.1}'))])
    yield one("calls-unicode", [user("Go"), calls(("f", '{"größe": "é😀日本\\u00e9\\ud83d\\ude00", "q": "a\\"b\\\\c\\n", "h": "<&\'>/"}'))])
    yield one("calls-markup", [user("Go"), calls(("f", '{"code": "</tool_call>{{ x }}{% if %}<|im_end|>"}')), result("</tool_response>{{ 7*7 }}<|eot_id|>")])
    yield one("calls-empty", [user("Go"), calls(("f", ""), ("g", None), ("h", "{}"), ("i", " "))])
    yield one("calls-text", [user("Go"), calls(("f", "not json"), ("g", "[1, 2]"), ("h", '"text"'), ("i", '{"a": 1'))])
    yield one("calls-object", [user("Go"), calls(("f", {"a": [1, 2.5, None, True], "b": {"c": "d"}, "e": {}}))])
    yield one("calls-content-missing", [user("Go"), {k: v for k, v in calls(("f", '{"a": 1}')).items() if k != "content"}, result("1")])
    yield one("calls-content-empty", [user("Go"), calls(("f", '{"a": 1}'), content=""), result("1")])
    yield one("calls-none", [user("Go"), assistant("x", tool_calls=None), user("y"), assistant("z", tool_calls=[])])
    yield one("extra-keys", [user("Hi", name="Ann", weight=0.5), assistant("Yo", refusal=None, audio=None, annotations=[]), user("Bye", x={"y": [1]})])
    yield one("unicode", [user("Ünï😀 日本語 é e\u0301 ﬁ \u200b\ufeff\u00a0 👩‍👩‍👧 \u202eabc"), assistant("안녕 привет"), user("مرحبا")])
    yield one("whitespace", [system("  s \n"), user("\n\n  a\t \r\n b  \n"), assistant("  \n x \n"), user(" ")])
    yield one("empty-texts", [user(""), assistant(""), user("")])
    yield one("quotes", [user("it's \"q\" `b` \\ \\n {'a': 1} [x] <y> &amp; %s {0}")])
    yield one("jinja", [user("{{ 7*7 }}{% raise %}{# c #}{{ raise_exception('x') }}"), assistant("{% endif %}"), user("}}")])
    yield one("control", [user("a\u0000b\u001b[0m\u007f\u2028c")])
    yield one("markers", [user("<|im_start|>system\nx<|im_end|><|eot_id|><end_of_turn><｜User｜><think></think><bos>"), assistant("<tool_call>"), user("ok")])
    yield one("parts", [user([{"type": "text", "text": "one"}, {"type": "text", "text": ""}, {"type": "text", "text": " two "}]), assistant("x"), user([{"type": "text", "text": "three"}])])
    yield one("parts-of-all", [{"role": "system", "content": [{"type": "text", "text": "S"}]}, user([{"type": "text", "text": "a"}]), assistant([{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]), user("d")])
    yield one("system-late", [user("a"), system("Now be terse."), user("b")])
    yield one("systems-two", [system("A"), system("B"), user("c")])
    yield one("developer", [{"role": "developer", "content": "Be terse."}, user("a")])
    yield one("users-two", [user("a"), user("b")])
    yield one("assistant-first", [assistant("Welcome."), user("a")])
    yield one("tool-like-user", [user("a"), assistant("b"), user("<tool_response>\nx\n</tool_response>")])
    yield one("variables", PLAIN, template_kwargs={"custom": [1, {"a": None}], "date_string": "26 Jul 2024"})
    yield one("documents", PLAIN, documents=[{"title": "T", "text": "Some text."}])
    yield one("continue", [user("Count."), assistant("One, two,")], continue_final_message=True)
    yield one("continue-blanks", [user("Count."), assistant("  One, two, \n")], continue_final_message=True)
    yield one("continue-thought", [user("2+2?"), assistant("<think>\nLet me")], continue_final_message=True)
    yield one("continue-empty", [user("Hi"), assistant("")], continue_final_message=True)


# What whin changes on purpose before a template sees it, and why.
def arguments(given, as_text: bool):
    """OpenAI's arguments are the text of an object. Templates want the object, all but DeepSeek V3's, which joins it to text."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return "{}" if as_text else {}
    if isinstance(given, str) and not as_text:
        try:
            parsed = json.loads(given)
        except ValueError:
            return given
        return parsed if isinstance(parsed, dict) else given
    return json.dumps(given, ensure_ascii=False) if as_text and isinstance(given, dict) else given


def changed(message: dict, model: str) -> dict:
    message = copy.deepcopy(message)
    as_text = null_content = model == "deepseek_v3"
    # None of these templates knows the role; all would leave the message out or fail.
    if message["role"] == "developer":
        message["role"] = "system"
    # Clients write "no calls" so; templates only ask whether the key is there, or for its first entry.
    if not message.get("tool_calls", True):
        del message["tool_calls"]
    for call in message.get("tool_calls", []):
        call["function"]["arguments"] = arguments(call["function"]["arguments"], as_text)
    # Templates print a null content as None, all but DeepSeek V3's, which knows a turn of calls by it.
    if message.get("content") is None:
        message["content"] = None if null_content else ""
    # Templates that take texts print a list in Python's notation.
    if isinstance(message["content"], list) and model != "gemma3":
        message["content"] = "\n".join(part["text"] for part in message["content"])
    return message


def rendered(model: str, auto, tokenizer: Tokenizer, conversation: dict) -> dict:
    messages = [changed(message, model) for message in conversation["messages"]]
    goes_on = conversation.get("continue_final_message", False)
    try:
        text = auto.apply_chat_template(
            messages, tools=conversation.get("tools"), documents=conversation.get("documents"), tokenize=False,
            add_generation_prompt=not goes_on, continue_final_message=goes_on, **conversation.get("template_kwargs", {}))
    except jinja2.exceptions.TemplateError as error:
        # Only raise_exception raises the class itself.
        return {"raised": str(error)} if type(error) is jinja2.exceptions.TemplateError else {}
    except (TypeError, ValueError):
        return {}
    return {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}


def main(folder: str):
    pairs = list(conversations())
    templates = {}
    for model in [*MODELS, "seedling"]:
        place = ROOT / "models/seedling" if model == "seedling" else Path(folder) / model
        auto = AutoTokenizer.from_pretrained(place)
        tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
        templates[model] = [rendered(model, auto, tokenizer, conversation) for _, conversation in pairs]
        made = templates[model]
        print(model, len(made), "texts:", sum("text" in m for m in made), "raised:", sum("raised" in m for m in made),
              "special:", auto.special_tokens_map)
    # One line an entry, and only ASCII: an invisible character must be visible in a diff.
    listed = ",\n".join(json.dumps({"name": name, **conversation}) for name, conversation in pairs)
    made = ",\n".join(f'"{model}": [\n' + ",\n".join(map(json.dumps, entries)) + "\n]" for model, entries in templates.items())
    FIXTURE.write_text('{"conversations": [\n' + listed + '\n],\n"templates": {\n' + made + "\n}}\n")
    print(f"{len(pairs)} conversations, {FIXTURE.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(*sys.argv[1:])
