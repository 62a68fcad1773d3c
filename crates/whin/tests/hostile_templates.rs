//! Templates that are made to do damage: each ends in an error, within two seconds and 200 MB of the whole process. They
//! run one after another in a process of their own, so that its peak is theirs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use whin::ErrorKind;
use whin::chat::messages::Conversation;
use whin::chat::template::Template;
use whin::checkpoint::Source;

fn render(template: &str) -> whin::Result<String> {
    let files = BTreeMap::from([("chat_template.jinja".to_owned(), template.as_bytes().to_vec())]);
    let conversation = Conversation {
        messages: vec![
            json!({"role": "user", "content": "Hello"}),
            json!({"role": "assistant", "content": "x".repeat(1000)}),
        ],
        ..Conversation::default()
    };
    Template::open(&Source::Memory(files.into()))?.apply(&conversation)
}

/// The most memory that this process has had in use, in bytes.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

type Attack = (&'static str, String);

fn loops(depth: usize, body: &str) -> String {
    format!("{}{body}{}", "{% for x in range(1000) %}".repeat(depth), "{% endfor %}".repeat(depth))
}

/// A step, a million times, with something in a namespace that it may make bigger.
fn growing(step: &str) -> String {
    format!("{{% set ns = namespace(s='x' * 100, l=[1], d={{}}) %}}{}", loops(2, step))
}

fn deep(open: &str, close: &str, times: usize) -> String {
    format!("{}x{}", open.repeat(times), close.repeat(times))
}

/// Loops, and values that grow with every step.
fn growing_values() -> Vec<Attack> {
    vec![
        ("loops in loops", loops(8, "x")),
        ("loops without output", loops(8, "{% set y = 1 %}")),
        ("output without end", loops(3, &"x".repeat(10_000))),
        ("a text doubled", growing("{% set ns.s = ns.s ~ ns.s %}")),
        ("a text added to itself", growing("{% set ns.s = ns.s + ns.s %}")),
        ("a text multiplied", "{{ 'x' * 1000000000000 }}".to_owned()),
        ("a text multiplied often", growing("{% set ns.s = ns.s * 10 %}")),
        ("a text replaced", growing("{% set ns.s = ns.s.replace('x', 'xxxxxxxxxx') %}")),
        ("a text replaced by the filter", growing("{% set ns.s = ns.s | replace('', 'xxxxxxxxxx') %}")),
        ("a text joined", growing("{% set ns.s = ns.s.join(ns.s) %}")),
        ("a text joined by the filter", growing("{% set ns.s = ns.s | join(ns.s) %}")),
        ("many texts kept", growing("{% set ns.l = ns.l + [ns.s * 10000 ~ loop.index] %}")),
        (
            "many captures kept",
            growing("{% set t %}{{ ns.s * 1000 }}{% endset %}{% set ns.l = ns.l + [t] %}"),
        ),
        ("a list doubled", growing("{% set ns.l = ns.l + ns.l %}")),
        ("a list multiplied", "{% for x in [1] * 10000000000 %}{% endfor %}".to_owned()),
        ("a list multiplied and kept", "{{ ([1] * 10000000000) | list | length }}".to_owned()),
        ("a tuple multiplied", "{{ (1, 2) * 10000000000 }}".to_owned()),
        ("a list nested deeply", growing("{% set ns.l = [ns.l] %}") + "{{ ns.l }}"),
        ("a dictionary nested deeply", growing("{% set ns.d = {'k': ns.d} %}") + "{{ ns.d | tojson }}"),
        ("a list nested deeply and compared", growing("{% set ns.l = [ns.l] %}{{ ns.l == ns.l }}")),
        (
            "a list of itself twice",
            growing("{% set ns.l = [ns.l, ns.l] %}{% if loop.index > 60 %}{{ ns.l }}{% endif %}"),
        ),
        ("JSON of a list of itself twice", growing("{% set ns.l = [ns.l, ns.l] %}") + "{{ ns.l | tojson }}"),
        (
            "a text of a list of itself twice",
            growing("{% set ns.l = [ns.l, ns.l] %}{% if loop.index > 60 %}{{ '' ~ ns.l }}{% endif %}"),
        ),
    ]
}

/// What is done with two lists, each of which holds another one twice, sixty times over.
const TWINS: [(&str, &str); 22] = [
    ("twins compared", "{{ ns.l == ns.d }}"),
    ("twins tested", "{{ ns.l is eq ns.d }}"),
    ("twins looked for", "{{ ns.l in [ns.d] }}"),
    ("twins ordered", "{{ ns.l < ns.d }}"),
    ("twins sorted", "{{ [ns.l, ns.d] | sort }}"),
    ("twins counted", "{{ [ns.l].count(ns.d) }}"),
    ("twins unified", "{{ [ns.l, ns.d] | unique | list }}"),
    ("a twin as a key", "{{ {ns.l: 1} }}"),
    ("twins compared by max", "{{ [ns.l, ns.d] | max }}"),
    ("twins grouped", "{{ [[ns.l], [ns.d]] | groupby(0) }}"),
    ("twins selected", "{{ [ns.l] | select('in', [ns.d]) | list }}"),
    ("a twin as a subscript", "{{ messages[0][ns.l] }}"),
    ("a twin as an attribute", "{{ messages | map(attribute=ns.l) | list }}"),
    ("a twin in an error", "{{ ns.l - 1 }}"),
    ("a twin in an error of a filter", "{{ 'x' | replace(ns.l, ns.d) }}"),
    ("a twin formatted", "{{ '%s' | format(ns.l) }}"),
    ("a twin formatted by str", "{{ '{}'.format(ns.l) }}"),
    ("a twin raised", "{{ raise_exception(ns.l) }}"),
    ("a twin in upper case", "{{ ns.l | upper }}"),
    ("a twin printed", "{{ ns.l | pprint }}"),
    ("a twin sliced", "{{ ns.l[::ns.d] }}"),
    ("a twin in a set", "{% set ns.x = dict(a=ns.l) %}{{ ns.x == dict(a=ns.d) }}"),
];

fn compared_values() -> Vec<Attack> {
    let twins = "{% set ns.l = [ns.l, ns.l] %}{% set ns.d = [ns.d, ns.d] %}";
    let later =
        |&(name, step)| (name, growing(&format!("{twins}{{% if loop.index > 60 %}}{step}{{% endif %}}")));
    let mut attacks: Vec<Attack> = TWINS.iter().map(later).collect();
    attacks.extend([
        ("twins changed", growing(&format!("{twins}{{% if loop.changed(ns.l) %}}{{% endif %}}"))),
        (
            "deep twins compared",
            growing("{% set ns.l = [ns.l] %}{% set ns.d = [ns.d] %}") + "{{ ns.l == ns.d }}",
        ),
        (
            "deep twins compared early",
            growing(
                "{% set ns.l = [ns.l] %}{% set ns.d = [ns.d] %}{% if loop.index == 999 %}{{ ns.l == ns.d }}{% endif %}",
            ),
        ),
        (
            "lists compared",
            growing(
                "{% set ns.l = [ns.l, ns.l] %}{% if loop.index > 60 %}{{ ns.l == [ns.l[0], ns.l[1]] }}{% endif %}",
            ),
        ),
    ]);
    attacks
}

/// Calls without an end, and long ranges.
fn calls_and_ranges() -> Vec<Attack> {
    vec![
        ("a macro that calls itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned()),
        (
            "a macro that calls itself twice",
            "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}".to_owned(),
        ),
        (
            "macros that call each other",
            "{% macro a(n) %}{% if n %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(60) }}"
                .to_owned(),
        ),
        ("a loop that calls itself", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}".to_owned()),
        (
            "a caller that calls",
            "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}".to_owned(),
        ),
        ("a long range", "{% for x in range(1000000000) %}x{% endfor %}".to_owned()),
        (
            "a long range backwards",
            "{{ range(9223372036854775807, -9223372036854775808, -1) | list }}".to_owned(),
        ),
        (
            "ranges in ranges",
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}".to_owned(),
        ),
        ("many long lists", growing("{% set ns.l = ns.l + [range(100000) | list] %}")),
    ]
}

/// Filters and methods that make or look at much.
fn fields_and_filters() -> Vec<Attack> {
    vec![
        ("a wide field", "{{ '%999999999d' | format(1) }}".to_owned()),
        ("a wide field of str.format", "{{ '{:999999999}'.format(1) }}".to_owned()),
        (
            "a wide precision",
            "{{ '%.999999999f' | format(1.5) }}{{ '{:.999999999f}'.format(1.5) }}".to_owned(),
        ),
        ("many fields", growing("{% set ns.l = ns.l + ['%9999d' | format(1)] %}")),
        ("a wide centre", "{{ 'x'.center(10000000000) }}".to_owned()),
        ("a wide centre of the filter", "{{ 'x' | center(10000000000) }}".to_owned()),
        ("many zeros", "{{ 'x'.zfill(10000000000) }}".to_owned()),
        ("a deep indent", "{{ ('a\n' * 1000) | indent(1000000000) }}".to_owned()),
        ("a deep indent of JSON", "{{ [[1]] | tojson(indent=1000000000) }}".to_owned()),
        ("a big power", "{{ 10 ** 1000000000 }}".to_owned()),
        ("many batches", "{{ [1] | batch(10000000000, 'x') | list }}".to_owned()),
        ("many slices", "{{ [1] | slice(10000000000) | list }}".to_owned()),
        ("much to sort", loops(1, "{{ (range(100000) | list | reverse | sort) | length }}")),
        ("much to split", loops(2, "{{ ('a ' * 1000000).split() | length }}")),
        (
            "much to search",
            loops(2, "{{ ('a' * 100000 ~ 'b') in ('a' * 1000000) }}{{ ('a' * 1000000).count('aaab') }}"),
        ),
        ("much to look up", loops(2, "{{ 'z' in (('a' * 1000000) | list) }}")),
        ("much to unify", loops(2, "{{ (range(100000) | unique | list) | length }}")),
        ("much to group", loops(2, "{{ (range(100000) | groupby('x')) | length }}")),
        ("much to print in upper case", loops(2, "{{ (('ß' * 1000000) | upper | title | lower) | length }}")),
        ("many rounded numbers", loops(3, "{{ 1.5 | round(400) }}")),
    ]
}

/// A text of two million bytes, and what is done to it a million times.
fn long(step: &str) -> String {
    format!(
        "{{% set s = 'x' * 2000000 %}}{{% set t = 'x' * 2000000 %}}{{% set e = 'é' * 1000000 %}}{}",
        loops(2, step)
    )
}

/// Work on long texts that is not to be had for nothing: what is done with them again and again.
const LONG_TEXTS: [(&str, &str); 20] = [
    ("long texts equal", "{% if s == t %}{% endif %}"),
    ("long texts tested", "{% if s is eq t %}{% endif %}"),
    ("long texts ordered", "{% if s < t %}{% endif %}"),
    ("long texts in lists", "{% if [s] == [t] %}{% endif %}"),
    ("a long text in a list", "{% if s in [t] %}{% endif %}"),
    ("a long text as a key", "{% if s in messages[0] %}{% endif %}"),
    ("a long text got", "{% set q = messages[0].get(s) %}"),
    ("a long text as a subscript", "{% set q = messages[0][s] %}"),
    ("a long text in a dictionary", "{% set q = {s: 1} %}"),
    ("a long text of a dictionary", "{% set q = dict([(s, 1)]) %}"),
    ("long texts sorted", "{% set q = ([s, t] * 1000) | sort %}"),
    ("long texts unified", "{% set q = ([s, t] * 1000) | unique | list %}"),
    ("the longest text", "{% set q = ([s, t] * 1000) | max %}"),
    ("long texts grouped", "{% set q = ([[s], [t]] * 1000) | groupby('0') %}"),
    ("long texts counted", "{% set q = ([s] * 1000).count(t) %}"),
    ("many beginnings", "{% set q = s.startswith((t,) * 100000) %}"),
    ("the last of many characters", "{% set q = e[999999] %}"),
    ("the last of many characters by a name", "{% set k = -1 %}{% set q = e[k] %}"),
    ("a slice of many characters", "{% set q = e[900000:900001] %}"),
    ("an escaped text in a list", "{% set q = ['\\x01' * 4000000] | string %}"),
];

/// The same in one step.
const ONE_STEP: [(&str, &str); 11] = [
    ("a long text in many fields", "{% set f = '{0}' * 1000000 %}{{ f.format('x' * 100000) }}"),
    ("a long text in some fields", "{% set f = '{0}' * 100000 %}{{ f.format('x' * 10000) | length }}"),
    ("a long text by a name", "{% set f = '{a}' * 100000 %}{{ f.format(a='x' * 10000) | length }}"),
    (
        "a long text in many fields of a filter",
        "{% set f = '%s' * 100000 %}{{ f | format(*(['x' * 10000] * 100000)) }}",
    ),
    ("a long text by a name of a filter", "{% set f = '%(a)s' * 100000 %}{{ f | format(a='x' * 10000) }}"),
    ("many wide fields", "{% set f = '{0:9999}' * 100000 %}{{ f.format(1) | length }}"),
    ("many lines", "{{ ('\\n' * 16000000).splitlines() | length }}"),
    ("many lines indented", "{{ ('\\n' * 16000000) | indent | length }}"),
    ("many words", "{{ ('a ' * 8000000).split() | length }}"),
    ("many words from the right", "{{ ('a ' * 8000000).rsplit() | length }}"),
    ("many times", "{{ strftime_now('%c' * 8000000) }}"),
];

/// The same, made anew a million times.
const MADE_ANEW: [(&str, &str); 6] = [
    ("a long time often", "{{ strftime_now('%c' * 500) }}"),
    ("many characters to trim", "{{ ('a' * 1000000) | trim('b' * 1000000 ~ 'a') }}"),
    ("long texts in upper case", "{% set q = ('ΐ' * 8000000).upper() %}"),
    (
        "namespaces in themselves",
        "{% set x %}{{ 'x' * 50000 }}{% endset %}{% set q = namespace() %}{% set q.a = [q, x] %}",
    ),
    (
        "loops in themselves",
        "{% set t = 'x' * 50000 %}{% for y in [t] %}{% if loop.changed(loop) %}{% endif %}{% endfor %}",
    ),
    (
        "macros in namespaces",
        "{% set q = namespace(t='x' * 50000) %}{% macro m() %}{{ q.t }}{% endmacro %}{% set q.m = m %}",
    ),
];

fn long_texts() -> Vec<Attack> {
    let mut attacks: Vec<Attack> = LONG_TEXTS.iter().map(|&(name, step)| (name, long(step))).collect();
    attacks.extend(ONE_STEP.iter().map(|&(name, template)| (name, template.to_owned())));
    attacks.extend(MADE_ANEW.iter().map(|&(name, step)| (name, loops(2, step))));
    let strip = "{% set t = 'b' * 8000000 ~ 'a' %}{{ ('a' * 8000000).strip(t) | length }}".to_owned();
    attacks.push(("many characters to strip", strip + &loops(3, "{{ 'a'.strip('b' * 100000) }}")));
    attacks
}

/// Templates that are hard to read.
fn sources() -> Vec<Attack> {
    vec![
        ("deep brackets", format!("{{{{ {}1{} }}}}", "(\n".repeat(10_000), ")\n".repeat(10_000))),
        ("deep lists in the source", format!("{{{{ {}1{} }}}}", "[".repeat(10_000), "]".repeat(10_000))),
        ("many signs", format!("{{{{ {}1 }}}}\n", "-".repeat(99)).repeat(2_000) + "{{ x.y.z }}"),
        ("many negations", format!("{{{{ {}x }}}}\n", "not ".repeat(99)).repeat(600) + "{{ x.y.z }}"),
        (
            "many conditions",
            format!("{{% if x %}}{}{{% endif %}}{{{{ x.y.z }}}}", "{% elif x %}\n".repeat(19_000)),
        ),
        ("many filters", format!("{{{{ 1{} }}}}{{{{ x.y.z }}}}", " | trim\n".repeat(4_000))),
        ("many attributes", format!("{{{{ messages{} }}}}", ".x\n".repeat(10_000))),
        ("many sums", format!("{{{{ 1{} }}}}{{{{ x.y.z }}}}", " + 1\n".repeat(6_000))),
        (
            "as many sums as are allowed",
            format!("{{{{ 1{} }}}}\n", " + 1".repeat(1_900)).repeat(30) + "{{ x.y.z }}",
        ),
        (
            "as many texts as are allowed",
            format!("{{{{ 1{} }}}}\n", " ~ 1".repeat(1_900)).repeat(30) + "{{ x.y.z }}",
        ),
        (
            "as many attributes as are allowed",
            format!("{{{{ messages{} }}}}\n", "[0]".repeat(10_000)).repeat(8),
        ),
        (
            "as many differences as are allowed",
            format!("{{{{ 1{} }}}}\n", "-1".repeat(15_000)).repeat(8) + "{{ x.y.z }}",
        ),
        (
            "as many filters as are allowed",
            format!("{{{{ 1{} }}}}\n", "|d".repeat(15_000)).repeat(8) + "{{ x.y.z }}",
        ),
        (
            "as many conditions as are allowed",
            format!("{{{{ {}1 }}}}\n", "1 if x else ".repeat(2_500)).repeat(8) + "{{ x.y.z }}",
        ),
        ("many statements in each other", deep("{% if true %}\n", "{% endif %}\n", 9_000)),
        ("many loops in each other", deep("{% for x in [1] %}\n", "{% endfor %}\n", 7_000)),
        ("many macros in each other", deep("{% macro m() %}\n", "{% endmacro %}\n", 7_000)),
        ("endless signs", format!("{{{{ {}1 }}}}", "-".repeat(30_000))),
        ("many openings", "{{\n".repeat(60_000)),
        ("many raw blocks", "{% raw %}\n".repeat(20_000)),
        ("many comments", "{#\n".repeat(50_000)),
        ("a template of more than is allowed", "x\n".repeat(200_000)),
        ("a long line", "x".repeat(100_000)),
        ("many lines", "\n".repeat(100_000) + "{{ x.y.z }}"),
    ]
}

/// What is not to be reached from a template.
fn tricks() -> Vec<Attack> {
    vec![
        ("a class", "{{ ''.__class__.__mro__[1].__subclasses__() }}".to_owned()),
        ("a class by subscript", "{{ ''['__class__']['__mro__'] }}".to_owned()),
        ("a class by a filter", "{{ ('' | attr('__class__')).__base__ }}".to_owned()),
        ("globals of a function", "{{ range.__globals__['os'].system('true') }}".to_owned()),
        ("the class by a format", "{{ '{0.__class__.__init__}'.format(1) }}".to_owned()),
        ("the class by map", "{{ ([''] | map(attribute='__class__.__mro__') | list)[0].x }}".to_owned()),
        ("a change of a list", "{{ messages.append(1) }}".to_owned()),
        ("a change of a dictionary", "{{ messages[0].update({'role': 'system'}) }}".to_owned()),
        ("a file", "{% include '/etc/passwd' %}".to_owned()),
        ("another template", "{% extends 'chat template' %}".to_owned()),
        ("an import", "{% import 'os' as os %}{{ os.system('true') }}".to_owned()),
        ("the environment", "{{ self.__init__.__globals__ }}".to_owned()),
    ]
}

#[test]
fn every_attack_ends_soon_and_small() {
    let mut wrong = Vec::new();
    let verbose = std::env::var_os("WHIN_SHOW_ATTACKS").is_some();
    let attacks =
        [growing_values, compared_values, calls_and_ranges, fields_and_filters, long_texts, sources, tricks];
    for (name, template) in attacks.into_iter().flat_map(|attacks| attacks()) {
        let started = Instant::now();
        let outcome = render(&template);
        let (took, peak) = (started.elapsed(), peak().unwrap_or(0));
        if verbose {
            let shown = outcome.as_ref().map(|text| text.len()).map_err(|error| error.to_string());
            eprintln!("{name}: {took:?}, {} MB: {shown:?}", peak / 1_000_000);
        }
        match outcome {
            Err(error)
                if error.kind() == ErrorKind::UnsupportedChatTemplate && error.to_string().len() < 2000 => {}
            Err(error) => wrong.push(format!("{name}: {:?}: {error}", error.kind())),
            Ok(text) => wrong.push(format!("{name} rendered {} bytes: {:.80}", text.len(), text)),
        }
        if took > Duration::from_secs(2) {
            wrong.push(format!("{name} took {took:?}"));
        }
        if peak > 200_000_000 {
            wrong.push(format!("after {name}, the peak was {peak} bytes"));
            break;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
