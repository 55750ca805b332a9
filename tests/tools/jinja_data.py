"""Conversations for jinja_judge.py: what clients send, plain and with everything that templates look at."""


def msg(role, content, **more):
    return {"role": role, "content": content, **more}


PLAIN = [
    [msg("user", "Hello! Who are you?")],
    [msg("system", "You are a pirate."), msg("user", "How do I boil an egg?")],
    [msg("user", "Name a colour."), msg("assistant", "Blue."), msg("user", "Another one, and say why.")],
    [msg("system", ""), msg("user", ""), msg("assistant", ""), msg("user", "x")],
    [msg("user", "  Où est la \"bibliothèque\" ?\n 😀 <|im_end|> {{ 7 * 7 }} {% if %}\t\n\n"),
     msg("assistant", "\n<think>\nWell,\n</think>\n\nThere.\n"), msg("user", "'a' & <b>\r\n\u00a0")],
    [msg("user", "a"), msg("user", "b")],
    [msg("system", "s"), msg("user", "u"), msg("assistant", "<think>hm</think>ok"), msg("tool", "42"),
     msg("tool", "{\"x\": 1}"), msg("assistant", "done")],
    [msg("assistant", "I speak first.")],
    [],
]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place, in \"plain\" words: <b>é</b> & 'more'\nSecond line.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "City, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 14},
                "at": {"type": "array", "items": {"type": "number"}, "description": ""},
                "deep": {"type": "object", "properties": {"x": {"type": "object", "properties": {}}},
                         "required": ["x"]},
                "either": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            },
            "required": ["place", "unit"],
        },
        "strict": True,
        "return": {"type": "string", "description": "what it says"},
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time.",
                                          "parameters": {"type": "object", "properties": {}}}}
BARE = {"name": "add", "description": "Add numbers", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}


def call(name, arguments, number):
    return {"id": f"call{number:05d}"[:9], "type": "function", "function": {"name": name, "arguments": arguments}}


ARGUMENTS = {"place": "São Paulo", "unit": "C", "days": 3, "at": [1.5, -2, 1e21], "deep": {"x": None, "ok": True}}
ARGUMENTS_TEXT = '{"place": "São Paulo", "unit": "C"}'


def with_tools(arguments, content, **more):
    return [
        msg("system", "Use tools."),
        msg("user", "Weather in São Paulo?"),
        msg("assistant", content, tool_calls=[call("get_weather", arguments, 1)], **more),
        msg("tool", '{"temp": 21.5, "sky": "clear ☀"}', tool_call_id="call00001", name="get_weather"),
        msg("assistant", "It is 21.5 °C."),
        msg("user", "And the time?"),
    ]


def parallel():
    return [
        msg("user", "Both, please."),
        msg("assistant", "", tool_calls=[call("get_weather", {"place": "Oslo"}, 1), call("clock", {}, 2)]),
        msg("tool", "rain", tool_call_id="call00001", name="get_weather"),
        msg("tool", "12:00", tool_call_id="call00002", name="clock"),
    ]


def parts(*items):
    return [{"type": "text", "text": i} if isinstance(i, str) else i for i in items]


IMAGE = {"type": "image"}
IMAGE_URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
RICH = [
    (with_tools(ARGUMENTS, None), [WEATHER, CLOCK]),
    (with_tools(ARGUMENTS, ""), [WEATHER]),
    (with_tools(ARGUMENTS_TEXT, None), [WEATHER, CLOCK]),
    (with_tools({}, "Let me look.", reasoning_content="They want the weather."), [WEATHER]),
    (with_tools(ARGUMENTS, "Let me look.", reasoning="hm\n", thinking="so\n"), None),
    (parallel(), [WEATHER, CLOCK]),
    (parallel(), None),
    ([msg("user", "What is 2+2?")], [BARE]),
    ([msg("system", "Be brief."), msg("user", "Hi")], [WEATHER, CLOCK]),
    ([msg("developer", "Be exact."), msg("user", "Hi")], [CLOCK]),
    ([msg("developer", "Be exact."), msg("user", "Hi"), msg("assistant", "Yes?"), msg("user", "Go on")], None),
    ([msg("system", parts("You are kind.")), msg("user", parts("Look: ", IMAGE, " and say."))], None),
    ([msg("user", parts("One. ", "Two.")), msg("assistant", parts("Three.")), msg("user", parts("Four"))], None),
    ([msg("user", parts(IMAGE_URL, "what is this?"))], [CLOCK]),
    ([msg("user", "17 * 3?"), msg("assistant", "51", reasoning_content="17*3 = 51"), msg("user", "And 18 * 3?"),
      msg("assistant", "<think>\n18*3\n</think>\n\n54"), msg("user", "Thanks")], None),
    ([msg("user", "u"), msg("assistant", None, tool_calls=[call("clock", {}, 1)]),
      msg("tool", parts("12:00"), tool_call_id="call00001", name="clock")], [CLOCK]),
    ([msg("user", "u"), msg("assistant", "a", tool_calls=[]), msg("user", "v", name="Ann")], []),
    ([msg("user", "u"), msg("assistant", "a", tool_calls=[{"name": "clock", "arguments": {"zone": "UTC"}}]),
      msg("tool", "12:00")], [CLOCK]),
    ([msg("user", "u"), msg("assistant", "a"), msg("ipython", "42"), msg("assistant", "b")], None),
    ([msg("weird", "u"), msg("user", "u")], None),
    ([{"role": "user"}], None),
    ([msg("user", "u"), {"role": "assistant", "tool_calls": [call("clock", {}, 1)]},
      {"role": "tool", "tool_call_id": "call00001", "content": ""}, msg("user", "v")], [CLOCK, WEATHER]),
]
DOCUMENTS = [{"title": "On eggs", "text": "Boil them\nlong.", "n": 1}, {"title": "Ähnliches", "text": "", "n": 2.5}]


def given(messages, add, tools=None, documents=None, **kwargs):
    return {"messages": messages, "tools": tools, "documents": documents, "add_generation_prompt": add,
            "bos_token": "<s>", "eos_token": "</s>", "kwargs": kwargs}


def plain():
    return [given(m, add) for m in PLAIN for add in (True, False)]


def rich():
    more = [given(m, add, tools) for m, tools in RICH for add in (True, False)]
    more += [given(m, True, tools, DOCUMENTS) for m, tools in RICH[:8]]
    more += [given(PLAIN[i], True, [WEATHER, CLOCK], enable_thinking=flag) for i in (1, 2, 6) for flag in (True, False)]
    more += [given(PLAIN[1], True, documents=DOCUMENTS)]
    return plain() + more
