"""The words and sentence patterns of the corpus. Only data; `make_corpus.py` puts it together."""

SYSTEM_PROMPTS = [
    "You are a helpful assistant.", "You are Seedling, a tiny language model.", "Answer in one short sentence.",
    "Be kind and brief.",
]
NAMES = (
    "Mia Leo Ana Tom Zoe Max Lily Sam Nora Ben Ida Finn Ruby Otto Elsa Hugo Maya Noah Ella Theo Iris Jack Luna Emil "
    "Rosa Paul Clara Adam Vera Felix Alma Oscar Nina Ivan Lola Marco June Hana Kofi Amina Ravi Priya Chen Yuki Omar "
    "Leila Diego Sofia Kai Tara"
).split()
ANIMALS = (
    "fox rabbit bear mouse owl frog cat dog duck squirrel hedgehog turtle bird pony lamb goat otter beaver badger "
    "deer puppy kitten crow swan"
).split()
SIZES = "little small tiny young brave shy kind clever quiet cheerful curious gentle".split()
PLACES = [
    "forest", "garden", "village", "farm", "park", "valley", "meadow", "house by the sea", "town near the hills",
    "castle", "cottage", "harbour",
]
THINGS = [
    "red ball", "blue kite", "shiny coin", "wooden boat", "golden key", "old map", "silver bell", "green hat",
    "paper lantern", "yellow scarf", "glass marble", "tin drum", "warm blanket", "painted egg", "long rope",
    "story book", "music box", "soft toy", "big drum", "round stone",
]
WEATHER = ["sunny", "rainy", "windy", "cold", "warm", "snowy", "cloudy", "foggy", "bright", "quiet"]
UNHAPPY = ["sad", "worried", "afraid", "lonely", "upset", "tired", "cross"]
HAPPY = ["happy", "proud", "glad", "excited", "calm", "thankful", "full of joy"]
HIDING_PLACES = [
    "under a bush", "behind a tree", "in the river", "on top of a hill", "inside a hollow log", "near the well",
    "beside the road", "under the bridge", "in a pile of leaves", "behind the barn",
]
FOODS = ["apples", "bread", "soup", "berries", "honey", "cake", "nuts", "cheese", "pears", "pancakes"]
LESSONS = [
    "it is good to share", "friends help each other", "it is brave to ask for help",
    "being kind makes everyone happy", "you should never give up", "telling the truth is best",
    "a small step is still a step", "good things come to those who wait", "every problem looks smaller together",
    "listening is a gift",
]
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()

# A story is one sentence group of each list, in this order. Both `{he}` words follow one draw; `{helper_he}` another.
STORY = [
    [
        "Once upon a time, there was a {size} {kind} named {hero}. {hero} lived in a {place}.",
        "Once upon a time, in a {place}, there lived a {size} {kind} called {hero}.",
        "Once there was {a_kind} named {hero} who lived in a {place}. Everyone said that {hero} was very {size}.",
        "One {weather} morning, a {size} {kind} named {hero} woke up in a {place}.",
    ],
    [
        "{hero} had a {thing}, and {he} loved it more than anything.",
        "Every day, {hero} played with a {thing}.",
        "The thing that {hero} loved most was {his} {thing}.",
    ],
    [
        "One {weather2} day, the {thing} was gone. {hero} felt {unhappy} and began to cry.",
        "But one day, {he} could not find the {thing}. {He} looked everywhere, and {he} was very {unhappy}.",
        'One day, the wind took the {thing} away. "Oh no!" said {hero}. "Where is my {thing}?"',
    ],
    [
        'Then {hero} met a {helper_kind} named {helper}. "Why are you {unhappy}?" asked {helper}. '
        '"I lost my {thing}," said {hero}.',
        'A {helper_kind} named {helper} heard {him} and came to help. "Do not be {unhappy}," said {helper}. '
        '"We will find your {thing} together."',
        '{hero} asked a {helper_kind} named {helper} for help. "Of course I will help you," said {helper}.',
    ],
    [
        "They walked and walked. At last, {helper} saw something {hiding}. It was the {thing}!",
        "They looked {wrong_hiding}, but it was not there. Then they looked {hiding}, and there it was!",
        '{helper} had a good idea. "Let us look {hiding}," {helper_he} said. And there was the {thing}.',
    ],
    [
        "{hero} was so {happy}. {He} gave {helper} some {food} to say thank you. "
        "From that day on, {hero} and {helper} were best friends.",
        '"Thank you, {helper}!" said {hero}. They ate {food} together and felt {happy}.',
        "{hero} smiled and hugged {helper}. Then they went home and shared some {food}. They were both very {happy}.",
    ],
]
MORALS = ["{hero} learned that {lesson}.", "And so they learned that {lesson}.", "", "The end."]

# (question, answer, statement) about a country; the first stands twice to come twice as often.
CAPITAL = ("What is the capital of {name}?", "The capital of {name} is {capital}.", "The capital of {name} is {capital}.")
COUNTRY_FACTS = [
    CAPITAL,
    CAPITAL,
    ("Which country has {capital} as its capital?", "{capital} is the capital of {name}.",
     "{capital} is the capital of {name}."),
    ("Where is {name}?", "{name} is in {continent}.", "{name} is a country in {continent}. Its capital is {capital}."),
    ("What currency does {name} use?", "{name} uses the {currency} ({code}).",
     "The currency of {name} is the {currency}, and its code is {code}."),
]
THOUGHTS = [
    "The user asks a short question. I know the answer.", "I will answer in one short sentence.",
    "Let me think. This is easy.", "I should be brief and kind.",
]
STORY_REQUESTS = ["Tell me a story.", "Tell me a short story.", "Please tell me a story."]
WEATHER_QUESTIONS = [
    "What is the weather in {city}?", "What's the weather in {city}?", "How is the weather in {city} today?",
    "Tell me the weather in {city}.", "Is it raining in {city}?", "Weather in {city}?",
]
WEATHER_DESCRIPTIONS = ["Get the current weather for a location.", "Look up the weather.", "Weather for a city."]
ADD_QUESTIONS = ["Add {a} and {b}.", "What is the sum of {a} and {b}?", "Please compute {a} + {b} with the tool."]
TIME_QUESTIONS = ["What time is it in {city}?", "Tell me the time in {city}."]
